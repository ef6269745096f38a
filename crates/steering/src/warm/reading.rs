//! What an Overprovisioner asks for, read once.

use veneer_api::Overprovisioner;
use veneer_api::overprovisioner::SpareState;

use super::keep::Mode;
use super::sizing;
use super::status::Faults;

/// Reads what the object asks for; what cannot be met is a fault.
pub(super) fn read(one: &Overprovisioner, mode: Mode, faults: &mut Faults) -> Option<sizing::Plan> {
    let spec = &one.spec;
    if !SpareState::KNOWN.contains(&spec.state.as_str()) {
        faults.sizing(format!(
            "spec.state: unknown state {:?}; expected one of {}",
            spec.state.as_str(),
            SpareState::KNOWN.join(", ")
        ));
    }
    let strategies = veneer_api::overprovisioner::SpareStrategy::KNOWN;
    if !strategies.contains(&spec.strategy.as_str()) {
        faults.sizing(format!(
            "spec.strategy: unknown strategy {:?}; expected one of {}",
            spec.strategy.as_str(),
            strategies.join(", ")
        ));
    }
    if mode == Mode::Companion && spec.state != SpareState::Running {
        faults.sizing(format!(
            "spec.state: {} spares need Veneer to launch instances itself, and here Karpenter does; use state Running, or run Veneer with --mode standalone",
            spec.state
        ));
    }
    if spec.target_node_pools.is_empty() {
        faults.sizing("spec.targetNodePools: no NodePool is listed; add one".to_owned());
    }
    match sizing::Plan::read(one) {
        Ok(plan) => Some(plan),
        Err(found) => {
            found.into_iter().for_each(|fault| faults.sizing(fault));
            None
        }
    }
}

/// What all spares of the object may cost per hour, if it says so.
pub(super) fn spend_limit(one: &Overprovisioner, faults: &mut Faults) -> Option<f64> {
    let text = one.spec.max_hourly_spend.as_deref()?;
    let limit = text
        .parse::<f64>()
        .ok()
        .filter(|limit| limit.is_finite() && *limit >= 0.0);
    if limit.is_none() {
        faults.sizing(format!(
            "spec.maxHourlySpend: expected dollars per hour, such as \"12.50\", found {text:?}"
        ));
    }
    limit
}
