#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]
use std::sync::Arc;
use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1);
    let scenario = match path {
        Some(path) => veneer_world::Scenario::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap(),
        None => veneer_world::Scenario::embedded().unwrap(),
    };
    let began = Instant::now();
    let catalogue = veneer_world::catalogue(&scenario).unwrap();
    println!("catalogue {} types {:?}", catalogue.types.len(), began.elapsed());
    let seed = scenario.seed;
    let end = scenario.start + scenario.duration.0;
    let mut world = veneer_world::World::new(Arc::new(scenario), catalogue, seed).unwrap();
    world.history = Some(String::new());
    let mut other = world.unsteered().unwrap();
    let began = Instant::now();
    world.advance(end);
    println!(
        "steered {:?} {} steps {} passes {} unsettled",
        began.elapsed(),
        world.statistics.steps,
        world.statistics.passes,
        world.statistics.unsettled
    );
    let began = Instant::now();
    other.advance(end);
    println!("plain {:?}", began.elapsed());
    if std::env::args().nth(2).is_some() {
        println!("{}", world.history.clone().unwrap());
    }
    println!("{}", serde_json::to_string_pretty(&world.picture()).unwrap());
    println!("{}", serde_json::to_string_pretty(&other.summary(None)).unwrap());
    println!(
        "{}",
        serde_json::to_string_pretty(&world.summary(Some(&other))).unwrap()
    );
}
