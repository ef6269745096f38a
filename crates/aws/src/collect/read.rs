//! How answers are read here: page by page into rows, and with an error where something is missing. A page that is cut off or
//! that comes from a proxy must never look like an empty list.

use k8s_openapi::jiff::Timestamp;
use roxmltree::Node;
use serde_json::Value;
use veneer_billing::{Exact, Platform};

use crate::call::Call;
use crate::client::Client;
use crate::ec2::parse;
use crate::error::Error;
use crate::wire::{field, items};

/// Gives what is wrong with an answer its place.
pub(super) fn unreadable(call: Call) -> impl Fn(String) -> Error {
    move |message| Error::Unreadable {
        action: call.action(),
        message,
    }
}

/// Reads all pages of a list of EC2: `read` makes a row of each item of `set`.
pub(super) async fn list(
    client: &Client,
    call: Call,
    mut request: Value,
    set: &str,
    mut read: impl FnMut(Node<'_, '_>) -> Result<(), String> + Send,
) -> Result<(), Error> {
    let unreadable = unreadable(call);
    let mut before = String::new();
    loop {
        let text = client.query(call, &request).await?;
        let next = {
            let document = parse(call, &text)?;
            let root = document.root_element();
            if !root.children().any(|one| one.tag_name().name() == set) {
                return Err(unreadable(format!("it has no {set}")));
            }
            for item in items(root, set) {
                read(item).map_err(&unreadable)?;
            }
            field(root, "nextToken")
        };
        if next.is_empty() {
            return Ok(());
        }
        follow(&mut request, "NextToken", &next, &mut before).map_err(&unreadable)?;
    }
}

/// Turns a request into that for the next page.
pub(super) fn follow(request: &mut Value, key: &str, next: &str, before: &mut String) -> Result<(), String> {
    if next == before {
        return Err("the next page is the same page".to_owned());
    }
    next.clone_into(before);
    if let Some(fields) = request.as_object_mut() {
        fields.insert(key.to_owned(), next.into());
    }
    Ok(())
}

/// A field that must be there.
pub(super) fn needed(item: Node<'_, '_>, name: &str) -> Result<String, String> {
    match field(item, name) {
        text if text.is_empty() => Err(format!("an item has no {name}")),
        text => Ok(text),
    }
}

/// A field of a field; empty if there is none.
pub(super) fn within(item: Node<'_, '_>, outer: &str, inner: &str) -> String {
    let outer = item.children().find(|one| one.tag_name().name() == outer);
    outer.map(|one| field(one, inner)).unwrap_or_default()
}

/// A time in seconds since 1970.
pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let time: Timestamp = text.parse().map_err(|_| format!("{text:?} is no time"))?;
    Ok(time.as_second())
}

/// An amount of money, to the last digit.
pub(super) fn amount(text: &str) -> Result<Exact, String> {
    let amount = Exact::parse(text.trim());
    amount.ok_or_else(|| format!("{text:?} is no amount"))
}

/// A whole number.
pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no count"))
}

/// Descriptions of platforms that have no name of their own in [`Platform`], with the code that they have in operations.
const DESCRIBED: [(&str, &str); 13] = [
    ("Linux with SQL Server Enterprise", "0100"),
    ("Linux with SQL Server Standard", "0004"),
    ("Linux with SQL Server Web", "0200"),
    ("RHEL with HA", "1010"),
    ("RHEL with HA and SQL Server Enterprise", "1110"),
    ("RHEL with HA and SQL Server Standard", "1014"),
    ("RHEL with SQL Server Enterprise", "0110"),
    ("RHEL with SQL Server Standard", "0014"),
    ("RHEL with SQL Server Web", "0210"),
    ("Windows with SQL Server", "0102"),
    ("Windows with SQL Server Enterprise", "0102"),
    ("Windows with SQL Server Standard", "0006"),
    ("Windows with SQL Server Web", "0202"),
];

/// The platform of a description, named as operations name it, so that both are the same.
pub(super) fn described(description: &str) -> Platform {
    match Platform::from_product_description(description) {
        Platform::Other(name) => {
            let mut known = DESCRIBED.iter();
            let code = known.find(|(known, _)| *known == name).map(|(_, code)| *code);
            Platform::Other(code.map_or(name, str::to_owned))
        }
        platform => platform,
    }
}
