//! The debug pages: what was collected, and who pays for what.

use serde_json::{Value, json};
use veneer_billing::{Allocator, Commitment, Covered, Exact};
use veneer_inventory::Inventory;

/// How many usages a page has; an organization may have tens of thousands.
const MOST_USAGES: usize = 1000;

fn number(amount: &Exact) -> Value {
    json!(amount.to_f64())
}

/// Every part, with its age and its error.
pub(super) fn inventory(inventory: &Inventory, now: i64) -> String {
    let accounts: Vec<Value> = inventory
        .accounts()
        .iter()
        .map(|account| json!({"id": account.id, "name": account.name}))
        .collect();
    let parts: Vec<Value> = inventory
        .parts()
        .map(|(part, collected)| {
            json!({
                "account": part.account,
                "region": part.region,
                "data": part.kind.name(),
                "rows": collected.rows.as_ref().map(veneer_inventory::Rows::len),
                "ageSeconds": inventory.age(part, now),
                "error": collected.error,
                "triedSecondsAgo": collected.tried.map(|at| now.saturating_sub(at)),
            })
        })
        .collect();
    let validations: Vec<Value> = inventory
        .validations()
        .map(|(account, one)| json!({"account": account, "error": one.error}))
        .collect();
    let page = json!({"accounts": accounts, "validations": validations, "parts": parts});
    format!("{page:#}\n")
}

/// Totals, commitments and usages of an hour in which everything runs on; usages by what nothing covers, the dearest first.
pub(super) fn bill(inventory: &Inventory, now: i64) -> String {
    let organization = inventory.organization(now);
    let allocator = Allocator::new(&organization);
    let bill = allocator.now(now);
    let totals = bill.totals();
    let commitments: Vec<Value> = bill
        .commitments()
        .map(|one| {
            let (what, unit) = match one.commitment {
                Commitment::Reserved(reserved) => {
                    let place = reserved.zone.as_deref().unwrap_or(&reserved.machine.region);
                    let what = format!(
                        "{} × {} in {place}",
                        reserved.count, reserved.machine.instance_type
                    );
                    (what, "instances")
                }
                Commitment::Plan(plan) => (plan.kind.to_string(), "dollars"),
            };
            json!({
                "id": one.commitment.id(),
                "account": one.commitment.account(),
                "what": what,
                "unit": unit,
                "capacity": number(&one.capacity),
                "used": number(&one.used),
                "left": number(&one.left()),
                "cost": number(&one.cost),
                "unusedCost": number(&one.unused_cost()),
            })
        })
        .collect();
    let mut usages: Vec<_> = bill
        .usages()
        .map(|usage| (usage.uncovered_cost(), usage))
        .collect();
    let left_out = usages.len().saturating_sub(MOST_USAGES);
    // The sort is stable: ids decide between equals.
    usages.sort_by(|a, b| b.0.cmp(&a.0));
    let usages: Vec<Value> = usages
        .iter()
        .take(MOST_USAGES)
        .map(|(open, usage)| {
            let what = match usage.covered() {
                Covered::Instance(machine) => machine.instance_type.clone(),
                Covered::UnusedReservation(machine) => {
                    format!("unused reservation of {}", machine.instance_type)
                }
                Covered::Usage(usage_type) => usage_type.to_owned(),
            };
            let shares: Vec<Value> = usage
                .shares()
                .map(|share| {
                    json!({
                        "commitment": share.id(),
                        "hours": number(&share.amount()),
                        "cost": number(&share.cost()),
                        "why": share.to_string(),
                    })
                })
                .collect();
            json!({
                "id": usage.id(),
                "account": usage.account(),
                "zone": usage.zone(),
                "what": what,
                "hours": number(&usage.amount()),
                "list": number(&usage.list_cost()),
                "effective": number(&usage.effective_cost()),
                "uncovered": number(open),
                "whyUncovered": open.is_positive().then(|| usage.why_uncovered()),
                "paidBy": shares,
            })
        })
        .collect();
    let problems: Vec<String> = allocator.problems().iter().map(ToString::to_string).collect();
    let page = json!({
        "currency": organization.prices.currency,
        "dollarsPerHour": {
            "list": number(&totals.list),
            "onDemand": number(&totals.on_demand),
            "ownPrice": number(&totals.own_price),
            "commitments": number(&totals.commitments),
            "unusedCommitments": number(&totals.unused),
            "total": number(&totals.total()),
        },
        "commitments": commitments,
        "usages": usages,
        "usagesLeftOut": left_out,
        "problems": problems,
        "note": "what is left of Compute Savings Plans is an upper bound: Fargate and Lambda are not collected",
    });
    format!("{page:#}\n")
}
