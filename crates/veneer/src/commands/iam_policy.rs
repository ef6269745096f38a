//! `veneer iam-policy`: what the controller's role must be allowed, on EC2 and for collecting commitments.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use veneer_aws::policy;

use crate::output;

/// Prints the IAM policy that standalone mode needs on EC2, as JSON
///
/// It allows the calls that Veneer makes and no others; what it makes carries the cluster's tag, and only what carries it
/// can be changed. With --collect it is instead what collecting commitments, usage and prices needs, which only reads.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer iam-policy --cluster prod --region us-west-2 --account 123456789012 --node-role prod-node
  veneer iam-policy --cluster prod --region us-west-2 --account 123456789012 --node-role prod-node --queue prod-interruptions
  veneer iam-policy --collect --assume-role arn:aws:iam::210987654321:role/veneer

Exit codes: 0 fine, 2 bad usage.")]
pub(crate) struct IamPolicyArgs {
    /// Name of the cluster (aws.clusterName)
    #[arg(long, value_name = "NAME", required_unless_present = "collect")]
    cluster: Option<String>,

    /// Region of the cluster
    #[arg(long, value_name = "REGION", required_unless_present = "collect")]
    region: Option<String>,

    /// Account of the cluster, twelve digits
    #[arg(long, value_name = "ID", required_unless_present = "collect")]
    account: Option<String>,

    /// Name of the IAM role of the nodes, with its path
    #[arg(long, value_name = "ROLE", required_unless_present = "collect")]
    node_role: Option<String>,

    /// Name of the queue with interruptions (aws.interruptionQueue)
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    /// Print what collecting commitments, usage and prices needs instead
    #[arg(long, conflicts_with_all = ["cluster", "region", "account", "node_role", "queue"])]
    collect: bool,

    /// Role of another account that is collected; may be given several times
    #[arg(long, value_name = "ARN", requires = "collect")]
    assume_role: Vec<String>,
}

pub(crate) fn run(args: &IamPolicyArgs) -> Result<ExitCode> {
    let document = match args.collect {
        true => policy::collection(&args.assume_role),
        false => of_cluster(args)?,
    };
    let mut out = output::stdout();
    writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn of_cluster(args: &IamPolicyArgs) -> Result<serde_json::Value> {
    let region = args.region.clone().unwrap_or_default();
    let account = args.account.clone().unwrap_or_default();
    if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("--account is {account:?}; expected twelve digits such as 123456789012");
    }
    let cluster = args.cluster.clone().unwrap_or_default();
    check("--cluster", &cluster, 100, "_-", "prod")?;
    check("--region", &region, 30, "-", "us-east-1")?;
    if let Some(queue) = &args.queue {
        check("--queue", queue, 80, "_-.", "karpenter")?;
    }
    let partition = match region.split('-').next().unwrap_or_default() {
        "cn" => "aws-cn",
        _ if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    Ok(policy::document(&policy::Scope {
        partition: partition.to_owned(),
        region,
        account,
        cluster,
        queue: args.queue.clone(),
        node_role: args.node_role.clone().unwrap_or_default(),
    }))
}

/// Refuses a name that AWS would refuse: the policy would grant nothing.
fn check(flag: &str, name: &str, longest: usize, others: &str, example: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    if name.is_empty() || name.len() > longest || !name.chars().all(fits) {
        let signs: Vec<String> = others.chars().map(|sign| format!("'{sign}'")).collect();
        bail!(
            "{flag} is {name:?}; expected letters, digits and {}, at most {longest}, such as {example}",
            signs.join(" and ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_possible_are_refused() {
        for good in ["prod", "Prod_1-a"] {
            assert!(check("--cluster", good, 100, "_-", "prod").is_ok(), "{good}");
        }
        for bad in ["", "a b", "a*", "a/b", "ä", &"a".repeat(101)] {
            let error = check("--cluster", bad, 100, "_-", "prod")
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("--cluster") && error.contains("such as prod"),
                "{error}"
            );
        }
    }
}
