use super::*;

fn find<'a>(aws: &'a AwsCatalogue, name: &str) -> (&'a InstanceType, &'a Facts) {
    let at = aws
        .catalogue
        .types
        .iter()
        .position(|t| &*t.name == name)
        .expect(name);
    (&aws.catalogue.types[at], &aws.facts[at])
}

#[test]
fn every_region_loads_and_every_price_makes_sense() {
    let regions = regions().unwrap();
    assert!(regions.len() >= 30, "{regions:?}");
    for name in regions {
        let aws = region(&name).unwrap();
        assert_eq!(aws.catalogue.types.len(), aws.facts.len(), "{name}");
        assert!(aws.catalogue.types.len() > 200, "{name}");
        assert!(aws.catalogue.types.is_sorted_by(|a, b| a.name < b.name), "{name}");
        for (instance_type, facts) in aws.catalogue.types.iter().zip(&aws.facts) {
            let context = format!("{} in {name}", instance_type.name);
            for offering in &instance_type.offerings {
                assert!(offering.price > 0.0 && offering.price < 1000.0, "{context}");
                assert!(
                    offering
                        .zone(&aws.catalogue.vocabulary)
                        .unwrap()
                        .starts_with(&name),
                    "{context}"
                );
            }
            if let (Some(on_demand), Some(spot)) = (facts.on_demand, facts.spot_estimate) {
                assert!(spot <= on_demand, "{context}: spot {spot}, on demand {on_demand}");
            }
            assert!(
                instance_type
                    .allocatable()
                    .iter()
                    .all(|(_, quantity)| !quantity.is_negative())
                    || instance_type.name.contains("nano")
                    || instance_type.name.contains("micro"),
                "{context}"
            );
        }
    }
}

#[test]
fn a_type_has_the_numbers_that_aws_documents() {
    let aws = region("us-east-1").unwrap();
    let (large, facts) = find(&aws, "m5.large");
    let text = |list: &crate::resources::ResourceList, name: &str| list.get(name).unwrap().to_string();
    assert_eq!(text(&large.capacity, "cpu"), "2");
    assert_eq!(text(&large.capacity, "memory"), "7577Mi");
    assert_eq!(text(&large.capacity, "pods"), "29");
    assert_eq!(text(&large.allocatable(), "cpu"), "1930m");
    assert_eq!(text(&large.allocatable(), "memory"), "6903Mi");
    assert_eq!(facts.on_demand, Some(0.096));
    assert!(facts.hibernation && !facts.bare_metal && !facts.burstable && !facts.on_demand_estimated);
    assert_eq!(
        large.offerings.len(),
        2 * 5,
        "m5.large is offered in five zones, on demand and spot"
    );

    let (gpu, facts) = find(&aws, "p4d.24xlarge");
    assert_eq!(text(&gpu.capacity, "nvidia.com/gpu"), "8");
    assert_eq!(text(&gpu.capacity, "vpc.amazonaws.com/efa"), "4");
    assert!(!facts.hibernation);
}

#[test]
fn an_unknown_region_is_refused_with_the_known_ones() {
    let error = region("eu-west-9").unwrap_err().to_string();
    assert!(
        error.starts_with("unknown region \"eu-west-9\"; the embedded catalogue has af-south-1, "),
        "{error}"
    );
    assert!(error.contains("eu-west-1, eu-west-2"), "{error}");
}

#[test]
fn the_sources_are_dated() {
    for source in sources().unwrap() {
        assert!(
            source.date.len() == 10 && !source.licence.is_empty() && !source.gives.is_empty(),
            "{source:?}"
        );
    }
}

#[test]
fn the_first_graviton_is_listed_but_cannot_be_launched_with_the_default_image() {
    let aws = region("us-east-1").unwrap();
    let (a1, _) = find(&aws, "a1.large");
    assert!(!a1.offerings.is_empty() && a1.offerings.iter().all(|offering| !offering.available));
}
