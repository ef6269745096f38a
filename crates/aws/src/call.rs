//! Every call that this crate makes, in one table: a request cannot be sent without its row, so the policy that
//! `veneer iam-policy` prints is complete, and a test compares it with what was called.

/// An AWS service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Instances, launch templates, images, networks.
    Ec2,
    /// Instance profiles.
    Iam,
    /// Interruption messages.
    Sqs,
    /// The ids of published machine images.
    Ssm,
    /// Savings Plans and what they pay.
    SavingsPlans,
    /// The price list.
    Pricing,
    /// How commitments are shared.
    Billing,
    /// Roles of other accounts.
    Sts,
}

impl Service {
    /// The name in signatures, host names and policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Iam => "iam",
            Self::Sqs => "sqs",
            Self::Ssm => "ssm",
            Self::SavingsPlans => "savingsplans",
            Self::Pricing => "pricing",
            Self::Billing => "billing",
            Self::Sts => "sts",
        }
    }
}

impl Call {
    /// Whether [`crate::collect`] makes the call.
    #[must_use]
    pub fn collects(self) -> bool {
        let is_own = matches!(self.reach(), Reach::Collect | Reach::Roles);
        is_own || matches!(self, Self::DescribeInstances | Self::DescribeSpotPriceHistory)
    }

    /// Further actions that AWS checks when the call is made as we make it: it tags what it makes, or runs instances.
    #[must_use]
    pub fn implied(self) -> &'static [&'static str] {
        match self {
            Self::CreateFleet => &["ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"],
            Self::CreateLaunchTemplate => &["ec2:CreateTags"],
            Self::CreateInstanceProfile => &["iam:TagInstanceProfile"],
            Self::AddRoleToInstanceProfile => &["iam:PassRole"],
            _ => &[],
        }
    }
}

/// What a call may touch, for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Reads that IAM cannot limit to resources.
    Read,
    /// Makes something that gets the cluster's tags in the same call.
    Create,
    /// Changes something that has the cluster's tags.
    Owned,
    /// Public parameters of the Systems Manager.
    Parameters,
    /// The interruption queue.
    Queue,
    /// Instance profiles that Veneer made.
    Profiles,
    /// Instance profiles that may not exist: IAM knows the path of a profile only while there is one.
    AnyProfile,
    /// Reads of commitments, usage and prices that nothing else needs; IAM cannot limit them to resources either.
    Collect,
    /// Roles of the accounts that are collected.
    Roles,
}

macro_rules! calls {
    ($( $name:ident = $service:ident $action:literal $reach:ident ),+ $(,)?) => {
        /// One API call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // The names are those of the AWS API.
        pub enum Call { $($name),+ }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The service that answers it.
            #[must_use]
            pub fn service(self) -> Service {
                match self { $(Self::$name => Service::$service),+ }
            }

            /// Its name in the API, which is also its name in policies.
            #[must_use]
            pub fn action(self) -> &'static str {
                match self { $(Self::$name => $action),+ }
            }

            /// What it may touch.
            #[must_use]
            pub fn reach(self) -> Reach {
                match self { $(Self::$name => Reach::$reach),+ }
            }
        }
    };
}

calls! {
    DescribeSubnets = Ec2 "DescribeSubnets" Read,
    DescribeSecurityGroups = Ec2 "DescribeSecurityGroups" Read,
    DescribeImages = Ec2 "DescribeImages" Read,
    DescribeInstances = Ec2 "DescribeInstances" Read,
    DescribeInstanceTypeOfferings = Ec2 "DescribeInstanceTypeOfferings" Read,
    DescribeSpotPriceHistory = Ec2 "DescribeSpotPriceHistory" Read,
    DescribeLaunchTemplates = Ec2 "DescribeLaunchTemplates" Read,
    CreateFleet = Ec2 "CreateFleet" Create,
    CreateLaunchTemplate = Ec2 "CreateLaunchTemplate" Create,
    DeleteLaunchTemplate = Ec2 "DeleteLaunchTemplate" Owned,
    TerminateInstances = Ec2 "TerminateInstances" Owned,
    StopInstances = Ec2 "StopInstances" Owned,
    StartInstances = Ec2 "StartInstances" Owned,
    ModifyInstanceAttribute = Ec2 "ModifyInstanceAttribute" Owned,
    GetParameter = Ssm "GetParameter" Parameters,
    GetQueueUrl = Sqs "GetQueueUrl" Queue,
    ReceiveMessage = Sqs "ReceiveMessage" Queue,
    DeleteMessage = Sqs "DeleteMessageBatch" Queue,
    GetInstanceProfile = Iam "GetInstanceProfile" AnyProfile,
    CreateInstanceProfile = Iam "CreateInstanceProfile" Profiles,
    AddRoleToInstanceProfile = Iam "AddRoleToInstanceProfile" Profiles,
    RemoveRoleFromInstanceProfile = Iam "RemoveRoleFromInstanceProfile" Profiles,
    DeleteInstanceProfile = Iam "DeleteInstanceProfile" Profiles,
    DescribeAvailabilityZones = Ec2 "DescribeAvailabilityZones" Collect,
    DescribeReservedInstances = Ec2 "DescribeReservedInstances" Collect,
    DescribeCapacityReservations = Ec2 "DescribeCapacityReservations" Collect,
    DescribeSavingsPlans = SavingsPlans "DescribeSavingsPlans" Collect,
    DescribeSavingsPlanRates = SavingsPlans "DescribeSavingsPlanRates" Collect,
    GetProducts = Pricing "GetProducts" Collect,
    GetBillingPreferences = Billing "GetBillingPreferences" Collect,
    GetCallerIdentity = Sts "GetCallerIdentity" Collect,
    AssumeRole = Sts "AssumeRole" Roles,
}
