//! From words to an expression, by recursive descent in the order of CEL's operators.

use regex_lite::Regex;

use super::functions;
use super::lexer::Token;

/// How deep expressions may be nested.
const DEPTH: usize = 64;

/// An operator with two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A macro over a list or a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    List(Vec<Expr>),
    Ident(String),
    Select(Box<Expr>, String),
    Has(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    /// A function with its arguments; the receiver of a method is the first one.
    Call(&'static str, Vec<Expr>),
    /// `matches` or `find` with a pattern that is known beforehand.
    Search(Box<Expr>, Regex, bool),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Choose(Box<Expr>, Box<Expr>, Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Over(Over, Box<Expr>, String, Box<Expr>),
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

/// Reads an expression.
pub(super) fn parse(tokens: &[Token]) -> Result<Expr, String> {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
    };
    let expression = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expression),
        Some(token) => Err(format!("{token:?} is not expected at the end")),
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(format!("expected {sign}, found {:?}", self.peek()))
        }
    }

    fn choice(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("nested too deep".to_owned());
        }
        let condition = self.or()?;
        let expression = if self.takes("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.choice()?;
            Expr::Choose(Box::new(condition), Box::new(yes), Box::new(no))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut left = self.and()?;
        while self.takes("||") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, String> {
        let mut left = self.relation()?;
        while self.takes("&&") {
            left = Expr::And(Box::new(left), Box::new(self.relation()?));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<Expr, String> {
        let mut left = self.sum()?;
        loop {
            let op = match self.peek() {
                Some(Token::Sign("==")) => Op::Equal,
                Some(Token::Sign("!=")) => Op::NotEqual,
                Some(Token::Sign("<")) => Op::Less,
                Some(Token::Sign("<=")) => Op::LessOrEqual,
                Some(Token::Sign(">")) => Op::Greater,
                Some(Token::Sign(">=")) => Op::GreaterOrEqual,
                Some(Token::Ident(word)) if word == "in" => Op::In,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(op, Box::new(left), Box::new(self.sum()?));
        }
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let mut left = self.product()?;
        loop {
            let op = match self.peek() {
                Some(Token::Sign("+")) => Op::Add,
                Some(Token::Sign("-")) => Op::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(op, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expr, String> {
        let mut left = self.unary()?;
        loop {
            let op = match self.peek() {
                Some(Token::Sign("*")) => Op::Multiply,
                Some(Token::Sign("/")) => Op::Divide,
                Some(Token::Sign("%")) => Op::Remainder,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(op, Box::new(left), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> Result<Expr, String> {
        let (mut nots, mut minuses) = (0_usize, 0_usize);
        while self.takes("!") {
            nots += 1;
        }
        while self.takes("-") {
            minuses += 1;
        }
        let mut expression = self.member()?;
        if minuses % 2 == 1 {
            expression = Expr::Negate(Box::new(expression));
        }
        // Two are not the same as none: what is no truth value stays an error.
        for _ in 0..nots.min(2 - nots % 2) {
            expression = Expr::Not(Box::new(expression));
        }
        Ok(expression)
    }

    fn member(&mut self) -> Result<Expr, String> {
        let mut expression = self.primary()?;
        loop {
            if self.takes(".") {
                let Some(Token::Ident(name)) = self.peek().cloned() else {
                    return Err(format!("expected a name after the dot, found {:?}", self.peek()));
                };
                self.at += 1;
                expression = if self.takes("(") {
                    self.method(expression, &name)?
                } else {
                    Expr::Select(Box::new(expression), unescape(&name))
                };
            } else if self.takes("[") {
                let index = self.choice()?;
                self.expect("]")?;
                expression = Expr::Index(Box::new(expression), Box::new(index));
            } else {
                return Ok(expression);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let token = self.peek().cloned().ok_or("the rule ends too early")?;
        self.at += 1;
        Ok(match token {
            Token::Int(number) => Expr::Int(number),
            Token::Double(number) => Expr::Double(number),
            Token::Text(text) => Expr::Text(text),
            Token::Sign("(") => {
                let inner = self.choice()?;
                self.expect(")")?;
                inner
            }
            Token::Sign("[") => Expr::List(self.list("]")?),
            Token::Ident(word) => match word.as_str() {
                "true" => Expr::Bool(true),
                "false" => Expr::Bool(false),
                "null" => Expr::Null,
                "has" if self.takes("(") => self.has()?,
                _ if self.takes("(") => {
                    let arguments = self.list(")")?;
                    call(&word, arguments, false)?
                }
                _ => Expr::Ident(word),
            },
            other => return Err(format!("{other:?} is not expected here")),
        })
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut items = Vec::new();
        while !self.takes(end) {
            if !items.is_empty() {
                self.expect(",")?;
                // A comma may stand after the last item.
                if self.takes(end) {
                    break;
                }
            }
            items.push(self.choice()?);
        }
        Ok(items)
    }

    fn has(&mut self) -> Result<Expr, String> {
        let inner = self.member()?;
        self.expect(")")?;
        match inner {
            Expr::Select(object, field) => Ok(Expr::Has(object, field)),
            _ => Err("has() needs a field".to_owned()),
        }
    }

    fn method(&mut self, receiver: Expr, name: &str) -> Result<Expr, String> {
        let over = match name {
            "all" => Over::All,
            "exists" => Over::Exists,
            "exists_one" | "existsOne" => Over::ExistsOne,
            "filter" => Over::Filter,
            "map" => Over::Map,
            _ => {
                let mut arguments = vec![receiver];
                arguments.extend(self.list(")")?);
                return call(name, arguments, true);
            }
        };
        let Some(Token::Ident(variable)) = self.peek().cloned() else {
            return Err(format!("{name} needs the name of a variable"));
        };
        self.at += 1;
        self.expect(",")?;
        let body = self.choice()?;
        self.expect(")")?;
        Ok(Expr::Over(over, Box::new(receiver), variable, Box::new(body)))
    }
}

fn call(name: &str, mut arguments: Vec<Expr>, is_method: bool) -> Result<Expr, String> {
    let known = functions::find(name, is_method, arguments.len());
    let known = known.ok_or_else(|| {
        format!(
            "the function {name} with {} arguments is not known here",
            arguments.len()
        )
    })?;
    if let ("matches" | "find", [_, Expr::Text(pattern)]) = (known, arguments.as_slice()) {
        let pattern = Regex::new(pattern).map_err(|error| format!("pattern {pattern}: {error}"))?;
        return Ok(Expr::Search(
            Box::new(arguments.swap_remove(0)),
            pattern,
            known == "find",
        ));
    }
    Ok(Expr::Call(known, arguments))
}

/// The name of a property as the schema has it: rules write what is no identifier in words.
fn unescape(name: &str) -> String {
    if !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__dash__", "-")
        .replace("__dot__", ".")
        .replace("__slash__", "/")
        .replace("__underscores__", "__")
}
