//! The part of CEL that the rules of CRDs use: parsed once, evaluated against values with their schema.
//!
//! Operators, the macros `has`, `all`, `exists`, `exists_one`, `filter` and `map`, and the functions of
//! [`functions`]. A rule beyond that does not compile, so no rule is ever skipped silently. As in CEL, `&&` and `||`
//! (and with them `all` and `exists`) forgive an error of one side when the other side decides.

mod evaluate;
mod functions;
mod lexer;
mod parser;
mod value;

use serde_json::Value as Json;

use crate::schema::Schema;

/// What a rule has that is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule, ready to be evaluated.
#[derive(Debug)]
pub struct Program {
    text: String,
    expression: parser::Expr,
    transition: bool,
}

impl Program {
    /// Reads a rule.
    ///
    /// # Errors
    ///
    /// When it has a fault, or something that is not known here.
    pub fn compile(text: &str) -> Result<Self, Unsupported> {
        let tokens = lexer::tokens(text).map_err(Unsupported)?;
        let expression = parser::parse(&tokens).map_err(Unsupported)?;
        let transition = tokens.contains(&lexer::Token::Ident("oldSelf".to_owned()));
        Ok(Self {
            text: text.to_owned(),
            expression,
            transition,
        })
    }

    /// The rule as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the rule compares with the stored object.
    #[must_use]
    pub fn is_transition(&self) -> bool {
        self.transition
    }
}

/// Whether a rule holds for `value`; an error is what the API server would refuse the object with.
pub(crate) fn holds(program: &Program, value: &Json, schema: &Schema) -> Result<bool, String> {
    let own = value::Val::read(value, Some(schema))?;
    let mut scope = evaluate::Scope::new("self", own);
    match evaluate::evaluate(&program.expression, &mut scope)? {
        value::Val::Bool(holds) => Ok(holds),
        _ => Err("the rule does not give true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests;
