//! `veneer iam-policy`: what the controller's role must be allowed on EC2.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use veneer_aws::policy;

use crate::output;

/// Prints the IAM policy that standalone mode needs on EC2, as JSON
///
/// It allows the calls that Veneer makes and no others; what it makes carries the cluster's tag, and only what carries it
/// can be changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer iam-policy --cluster prod --region us-west-2 --account 123456789012 --node-role prod-node
  veneer iam-policy --cluster prod --region us-west-2 --account 123456789012 --node-role prod-node --queue prod-interruptions

Exit codes: 0 fine, 2 bad usage.")]
pub(crate) struct IamPolicyArgs {
    /// Name of the cluster (aws.clusterName)
    #[arg(long, value_name = "NAME")]
    cluster: String,

    /// Region of the cluster
    #[arg(long, value_name = "REGION")]
    region: String,

    /// Account of the cluster, twelve digits
    #[arg(long, value_name = "ID")]
    account: String,

    /// Name of the IAM role of the nodes, with its path
    #[arg(long, value_name = "ROLE")]
    node_role: String,

    /// Name of the queue with interruptions (aws.interruptionQueue)
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
}

pub(crate) fn run(args: &IamPolicyArgs) -> Result<ExitCode> {
    if args.account.len() != 12 || !args.account.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!(
            "--account is {:?}; expected twelve digits such as 123456789012",
            args.account
        );
    }
    let partition = match args.region.split('-').next().unwrap_or_default() {
        "cn" => "aws-cn",
        _ if args.region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    let document = policy::document(&policy::Scope {
        partition: partition.to_owned(),
        region: args.region.clone(),
        account: args.account.clone(),
        cluster: args.cluster.clone(),
        queue: args.queue.clone(),
        node_role: args.node_role.clone(),
    });
    let mut out = output::stdout();
    writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
