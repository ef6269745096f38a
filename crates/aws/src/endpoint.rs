//! Where the services are, and in which region a request to each is signed.

use crate::call::Service;

/// The region that a partition's global services have.
fn home(region: &str) -> &'static str {
    match region.split('-').collect::<Vec<_>>().as_slice() {
        ["cn", ..] => "cn-northwest-1",
        ["us", "gov", ..] => "us-gov-west-1",
        ["us", "iso", ..] => "us-iso-east-1",
        ["us", "isob", ..] => "us-isob-east-1",
        _ => "us-east-1",
    }
}

/// The region of the price list that is nearest to a region: it is served in three (and one in China), and knows all of them.
fn price_list(region: &str) -> &'static str {
    match region.split('-').next().unwrap_or_default() {
        "cn" => "cn-northwest-1",
        "eu" | "af" => "eu-central-1",
        "ap" | "me" | "il" => "ap-south-1",
        _ => "us-east-1",
    }
}

/// The region in which a request is signed.
pub(crate) fn signing_region(service: Service, region: &str) -> &str {
    match service {
        // The one region in which IAM signs is the first of its partition.
        Service::Iam if region.starts_with("cn-") => "cn-north-1",
        Service::Iam | Service::Billing => home(region),
        Service::SavingsPlans if home(region) == "us-east-1" => "us-east-1",
        Service::Pricing => price_list(region),
        _ => region,
    }
}

/// The address of a service in a region.
pub(crate) fn url(service: Service, region: &str, fips: bool, dual: bool) -> String {
    let (domain, dual_domain) = match region.split('-').collect::<Vec<_>>().as_slice() {
        ["cn", ..] => ("amazonaws.com.cn", "api.amazonwebservices.com.cn"),
        ["us", "iso", ..] => ("c2s.ic.gov", "api.aws.ic.gov"),
        ["us", "isob", ..] => ("sc2s.sgov.gov", "api.aws.scloud"),
        _ => ("amazonaws.com", "api.aws"),
    };
    let name = match service {
        Service::Pricing => "api.pricing",
        other => other.name(),
    };
    let name = if fips {
        format!("{name}-fips")
    } else {
        name.to_owned()
    };
    let domain = if dual { dual_domain } else { domain };
    let signed = signing_region(service, region);
    match service {
        // IAM has one endpoint for each partition.
        Service::Iam if region.starts_with("cn-") => format!("https://iam.cn-north-1.{domain}/"),
        Service::Iam if region.starts_with("us-gov-") => format!("https://iam.us-gov.{domain}/"),
        Service::Iam => format!("https://{name}.{domain}/"),
        // One for all regions.
        Service::SavingsPlans if signed == "us-east-1" && !fips && !dual => {
            format!("https://{name}.{domain}/")
        }
        Service::Billing if signed == "us-east-1" && !fips => {
            format!("https://{name}.{signed}.{dual_domain}/")
        }
        _ => format!("https://{name}.{signed}.{domain}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_follow_the_partition() {
        let cases = [
            (
                Service::Ec2,
                "us-west-2",
                false,
                false,
                "https://ec2.us-west-2.amazonaws.com/",
            ),
            (
                Service::Ec2,
                "us-gov-west-1",
                true,
                false,
                "https://ec2-fips.us-gov-west-1.amazonaws.com/",
            ),
            (
                Service::Sqs,
                "eu-west-1",
                false,
                true,
                "https://sqs.eu-west-1.api.aws/",
            ),
            (
                Service::Ssm,
                "cn-north-1",
                false,
                false,
                "https://ssm.cn-north-1.amazonaws.com.cn/",
            ),
            (
                Service::Iam,
                "eu-west-1",
                false,
                false,
                "https://iam.amazonaws.com/",
            ),
            (
                Service::Iam,
                "us-gov-east-1",
                false,
                false,
                "https://iam.us-gov.amazonaws.com/",
            ),
            (
                Service::SavingsPlans,
                "eu-west-1",
                false,
                false,
                "https://savingsplans.amazonaws.com/",
            ),
            (
                Service::Pricing,
                "eu-west-1",
                false,
                false,
                "https://api.pricing.eu-central-1.amazonaws.com/",
            ),
            (
                Service::Pricing,
                "us-west-2",
                false,
                false,
                "https://api.pricing.us-east-1.amazonaws.com/",
            ),
            (
                Service::Pricing,
                "cn-north-1",
                false,
                false,
                "https://api.pricing.cn-northwest-1.amazonaws.com.cn/",
            ),
            (
                Service::Billing,
                "eu-west-1",
                false,
                false,
                "https://billing.us-east-1.api.aws/",
            ),
            (
                Service::Sts,
                "eu-west-1",
                false,
                false,
                "https://sts.eu-west-1.amazonaws.com/",
            ),
        ];
        for (service, region, fips, dual, expected) in cases {
            assert_eq!(url(service, region, fips, dual), expected);
        }
    }

    #[test]
    fn global_services_are_signed_in_their_own_region() {
        let cases = [
            (Service::Ec2, "eu-west-1", "eu-west-1"),
            (Service::Sts, "eu-west-1", "eu-west-1"),
            (Service::Iam, "eu-west-1", "us-east-1"),
            (Service::Iam, "us-gov-east-1", "us-gov-west-1"),
            (Service::Iam, "cn-northwest-1", "cn-north-1"),
            (Service::SavingsPlans, "eu-west-1", "us-east-1"),
            (Service::SavingsPlans, "cn-north-1", "cn-north-1"),
            (Service::Billing, "ap-south-2", "us-east-1"),
            (Service::Pricing, "ap-northeast-1", "ap-south-1"),
            (Service::Pricing, "sa-east-1", "us-east-1"),
        ];
        for (service, region, expected) in cases {
            assert_eq!(
                signing_region(service, region),
                expected,
                "{service:?} in {region}"
            );
        }
    }
}
