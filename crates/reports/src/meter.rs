//! What a usage type such as `EUW1-BoxUsage:m5.large` counts.

use veneer_billing::Tenancy;

/// What a line of a report counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Meter {
    /// Hours of an on-demand instance.
    Instance,
    /// Hours of a spot instance.
    Spot,
    /// Hours of a capacity reservation that no instance used.
    UnusedReservation,
    /// Hours of a capacity reservation, used or not: told for information, and free.
    Reservation,
    /// Other usage that Compute Savings Plans may cover: Fargate, Lambda.
    Other,
    /// Anything else.
    None,
}

impl Meter {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Instance, "i"),
        (Self::Spot, "s"),
        (Self::UnusedReservation, "u"),
        (Self::Reservation, "r"),
        (Self::Other, "o"),
        (Self::None, "-"),
    ];

    pub(crate) fn letter(self) -> &'static str {
        let found = Self::ALL.iter().find(|(meter, _)| *meter == self);
        found.map_or("-", |(_, letter)| letter)
    }

    pub(crate) fn from_letter(letter: &str) -> Self {
        let found = Self::ALL.iter().find(|(_, other)| *other == letter);
        found.map_or(Self::None, |(meter, _)| *meter)
    }
}

/// A usage type, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageType<'a> {
    pub(crate) meter: Meter,
    pub(crate) tenancy: Tenancy,
    /// After the colon: the instance type, or what a plan was bought as.
    pub(crate) detail: &'a str,
    /// Whether it is the fee of an EC2 Instance plan (`EC2SP:m5.1yrNoUpfront`).
    pub(crate) is_ec2_plan: bool,
}

/// Takes a usage type apart. The prefix of a region (`EUW1-`) does not matter here: reports name the region elsewhere.
pub(crate) fn usage_type(text: &str) -> UsageType<'_> {
    let (name, detail) = text.split_once(':').unwrap_or((text, ""));
    let name = name.rsplit('-').next().unwrap_or(name);
    let (meter, tenancy) = match name {
        "BoxUsage" => (Meter::Instance, Tenancy::Default),
        "DedicatedUsage" => (Meter::Instance, Tenancy::Dedicated),
        "HostBoxUsage" => (Meter::Instance, Tenancy::Host),
        "SpotUsage" => (Meter::Spot, Tenancy::Default),
        "UnusedBox" => (Meter::UnusedReservation, Tenancy::Default),
        "UnusedDed" => (Meter::UnusedReservation, Tenancy::Dedicated),
        "Reservation" => (Meter::Reservation, Tenancy::Default),
        "DedicatedRes" => (Meter::Reservation, Tenancy::Dedicated),
        // The fees of Reserved Instances.
        "HeavyUsage" => (Meter::None, Tenancy::Default),
        "DedicatedHeavyUsage" => (Meter::None, Tenancy::Dedicated),
        _ => (Meter::None, Tenancy::Default),
    };
    UsageType {
        meter,
        tenancy,
        detail,
        is_ec2_plan: name == "EC2SP",
    }
}

/// Services whose usage Compute Savings Plans cover besides EC2.
pub(crate) fn is_compute_service(code: &str) -> bool {
    matches!(code, "AmazonECS" | "AmazonEKS" | "AWSLambda")
}

/// The region of an availability zone such as `eu-west-1b`.
pub(crate) fn region_of_zone(zone: &str) -> &str {
    match zone.as_bytes() {
        [.., digit, letter] if digit.is_ascii_digit() && letter.is_ascii_lowercase() => {
            zone.get(..zone.len() - 1).unwrap_or(zone)
        }
        _ => zone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_types_are_taken_apart_with_and_without_the_prefix_of_a_region() {
        for (text, meter, tenancy, detail) in [
            ("BoxUsage:m5.large", Meter::Instance, Tenancy::Default, "m5.large"),
            (
                "EUW1-BoxUsage:m5.large",
                Meter::Instance,
                Tenancy::Default,
                "m5.large",
            ),
            (
                "USE2-DedicatedUsage:m5.large",
                Meter::Instance,
                Tenancy::Dedicated,
                "m5.large",
            ),
            ("SpotUsage:c5.xlarge", Meter::Spot, Tenancy::Default, "c5.xlarge"),
            (
                "UnusedBox:m4.large",
                Meter::UnusedReservation,
                Tenancy::Default,
                "m4.large",
            ),
            (
                "USW2-Reservation:m4.large",
                Meter::Reservation,
                Tenancy::Default,
                "m4.large",
            ),
            (
                "Fargate-vCPU-Hours:perCPU",
                Meter::None,
                Tenancy::Default,
                "perCPU",
            ),
            ("TimedStorage-ByteHrs", Meter::None, Tenancy::Default, ""),
        ] {
            let found = usage_type(text);
            assert_eq!(
                (found.meter, found.tenancy, found.detail),
                (meter, tenancy, detail),
                "{text}"
            );
        }
        assert!(usage_type("EUW1-EC2SP:m5.1yrNoUpfront").is_ec2_plan);
        assert_eq!(region_of_zone("eu-west-1b"), "eu-west-1");
        assert_eq!(region_of_zone("use1-az1"), "use1-az1");
    }
}
