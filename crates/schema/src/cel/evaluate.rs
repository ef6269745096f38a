//! The value of an expression.

use std::cmp::Ordering;

use super::functions;
use super::parser::{Expr, Op, Over};
use super::value::Val;

/// The variables of an expression, the innermost last.
pub(super) struct Scope<'a>(Vec<(String, Val<'a>)>);

impl<'a> Scope<'a> {
    pub(super) fn new(name: &str, value: Val<'a>) -> Self {
        Self(vec![(name.to_owned(), value)])
    }

    fn get(&self, name: &str) -> Result<Val<'a>, String> {
        let found = self.0.iter().rev().find(|(known, _)| known == name);
        let found = found.map(|(_, value)| value.clone());
        found.ok_or_else(|| format!("there is no variable {name}"))
    }
}

/// Evaluates an expression.
pub(super) fn evaluate<'a>(expression: &Expr, scope: &mut Scope<'a>) -> Result<Val<'a>, String> {
    Ok(match expression {
        Expr::Null => Val::Null,
        Expr::Bool(flag) => Val::Bool(*flag),
        Expr::Int(number) => Val::Int(*number),
        Expr::Double(number) => Val::Double(*number),
        Expr::Text(text) => Val::Text(text.clone()),
        Expr::List(items) => {
            let items: Result<Vec<Val<'a>>, String> =
                items.iter().map(|item| evaluate(item, scope)).collect();
            Val::List(items?)
        }
        Expr::Ident(name) => scope.get(name)?,
        Expr::Select(object, field) => evaluate(object, scope)?.field(field)?,
        Expr::Has(object, field) => Val::Bool(evaluate(object, scope)?.has(field)?),
        Expr::Index(object, index) => {
            let (object, index) = (evaluate(object, scope)?, evaluate(index, scope)?);
            at(&object, &index)?
        }
        Expr::Call(name, arguments) => {
            let arguments: Result<Vec<Val<'a>>, String> = arguments
                .iter()
                .map(|argument| evaluate(argument, scope))
                .collect();
            functions::call(name, &arguments?)?
        }
        Expr::Search(text, pattern, finds) => match evaluate(text, scope)? {
            Val::Text(text) => functions::search(&text, pattern, *finds),
            other => return Err(format!("a pattern needs text, not {other:?}")),
        },
        Expr::Not(inner) => Val::Bool(!truth(evaluate(inner, scope))?),
        Expr::Negate(inner) => match evaluate(inner, scope)? {
            Val::Int(number) => Val::Int(number.checked_neg().ok_or("integer overflow")?),
            Val::Double(number) => Val::Double(-number),
            other => return Err(format!("{other:?} has no negative")),
        },
        Expr::And(left, right) => {
            let (left, right) = (left.as_ref(), right.as_ref());
            decide(
                [left, right].into_iter().map(|side| truth(evaluate(side, scope))),
                false,
            )?
        }
        Expr::Or(left, right) => {
            let (left, right) = (left.as_ref(), right.as_ref());
            decide(
                [left, right].into_iter().map(|side| truth(evaluate(side, scope))),
                true,
            )?
        }
        Expr::Choose(condition, yes, no) => {
            let chosen = if truth(evaluate(condition, scope))? {
                yes
            } else {
                no
            };
            evaluate(chosen, scope)?
        }
        Expr::Binary(op, left, right) => {
            let (left, right) = (evaluate(left, scope)?, evaluate(right, scope)?);
            binary(*op, &left, &right)?
        }
        Expr::Over(over, range, variable, body) => over_range(*over, range, variable, body, scope)?,
    })
}

fn truth(value: Result<Val<'_>, String>) -> Result<bool, String> {
    match value? {
        Val::Bool(flag) => Ok(flag),
        other => Err(format!("{other:?} is not true or false")),
    }
}

/// The first side that is `deciding` decides; otherwise an error stays an error.
fn decide<'a>(sides: impl Iterator<Item = Result<bool, String>>, deciding: bool) -> Result<Val<'a>, String> {
    let mut error = None;
    for side in sides {
        match side {
            Ok(flag) if flag == deciding => return Ok(Val::Bool(deciding)),
            Ok(_) => {}
            Err(found) => error = Some(error.unwrap_or(found)),
        }
    }
    error.map_or(Ok(Val::Bool(!deciding)), Err)
}

fn over_range<'a>(
    over: Over,
    range: &Expr,
    variable: &str,
    body: &Expr,
    scope: &mut Scope<'a>,
) -> Result<Val<'a>, String> {
    let items = evaluate(range, scope)?.walk()?;
    let mut judge = |item: Result<Val<'a>, String>| {
        scope.0.push((variable.to_owned(), item?));
        let judged = evaluate(body, scope);
        scope.0.pop();
        judged
    };
    match over {
        Over::All => decide(items.into_iter().map(|item| truth(judge(item))), false),
        Over::Exists => decide(items.into_iter().map(|item| truth(judge(item))), true),
        Over::ExistsOne => {
            let mut count = 0_usize;
            for item in items {
                count += usize::from(truth(judge(item))?);
            }
            Ok(Val::Bool(count == 1))
        }
        Over::Filter => {
            let mut kept = Vec::new();
            for item in items {
                let item = item?;
                if truth(judge(Ok(item.clone())))? {
                    kept.push(item);
                }
            }
            Ok(Val::List(kept))
        }
        Over::Map => {
            let mapped: Result<Vec<Val<'a>>, String> = items.into_iter().map(judge).collect();
            Ok(Val::List(mapped?))
        }
    }
}

fn at<'a>(object: &Val<'a>, index: &Val<'a>) -> Result<Val<'a>, String> {
    let number = |index: &i64| usize::try_from(*index).map_err(|_| format!("index {index} is out of range"));
    match (object, index) {
        (Val::Fields(..), Val::Text(name)) => object.field(name),
        (Val::List(items), Val::Int(index)) => {
            let item = items.get(number(index)?).cloned();
            item.ok_or_else(|| format!("index {index} is out of range"))
        }
        (Val::Items(items, schema), Val::Int(index)) => {
            let item = items.get(number(index)?);
            Val::read(
                item.ok_or_else(|| format!("index {index} is out of range"))?,
                *schema,
            )
        }
        _ => Err(format!("{index:?} is no index here")),
    }
}

fn binary<'a>(op: Op, left: &Val<'a>, right: &Val<'a>) -> Result<Val<'a>, String> {
    let order = |fits: fn(Ordering) -> bool| Ok(Val::Bool(fits(left.order(right)?)));
    match op {
        Op::Equal => Ok(Val::Bool(left.equals(right)?)),
        Op::NotEqual => Ok(Val::Bool(!left.equals(right)?)),
        Op::Less => order(Ordering::is_lt),
        Op::LessOrEqual => order(Ordering::is_le),
        Op::Greater => order(Ordering::is_gt),
        Op::GreaterOrEqual => order(Ordering::is_ge),
        Op::In => contains(left, right),
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder => arithmetic(op, left, right),
    }
}

fn contains<'a>(item: &Val<'a>, range: &Val<'a>) -> Result<Val<'a>, String> {
    if let (Val::Fields(fields, _), Val::Text(key)) = (range, item) {
        return Ok(Val::Bool(fields.contains_key(key)));
    }
    let sides = range.walk()?.into_iter().map(|other| other?.equals(item));
    decide(sides, true)
}

fn arithmetic<'a>(op: Op, left: &Val<'a>, right: &Val<'a>) -> Result<Val<'a>, String> {
    let overflow = || "integer overflow or division by zero".to_owned();
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => {
            let result = match op {
                Op::Add => a.checked_add(*b),
                Op::Subtract => a.checked_sub(*b),
                Op::Multiply => a.checked_mul(*b),
                Op::Divide => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Val::Int).ok_or_else(overflow)
        }
        (Val::Double(a), Val::Double(b)) => match op {
            Op::Add => Ok(Val::Double(a + b)),
            Op::Subtract => Ok(Val::Double(a - b)),
            Op::Multiply => Ok(Val::Double(a * b)),
            Op::Divide => Ok(Val::Double(a / b)),
            _ => Err(overflow()),
        },
        (Val::Text(a), Val::Text(b)) if op == Op::Add => Ok(Val::Text(format!("{a}{b}"))),
        (Val::Duration(a), Val::Duration(b)) if op == Op::Add => {
            a.checked_add(*b).map(Val::Duration).ok_or_else(overflow)
        }
        (Val::Duration(a), Val::Duration(b)) if op == Op::Subtract => {
            a.checked_sub(*b).map(Val::Duration).ok_or_else(overflow)
        }
        _ => Err(format!("{op:?} does not go with {left:?} and {right:?}")),
    }
}
