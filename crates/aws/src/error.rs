//! What can go wrong between us and AWS.

/// Why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// AWS refused.
    #[error("{action}: {code}: {message}")]
    Refused {
        /// The call.
        action: &'static str,
        /// AWS's own code.
        code: String,
        /// AWS's own words.
        message: String,
        /// The HTTP status.
        status: u16,
    },
    /// AWS could not be reached.
    #[error("{action}: cannot reach {url}: {message}")]
    Unreachable {
        /// The call.
        action: &'static str,
        /// Where it went.
        url: String,
        /// What happened.
        message: String,
    },
    /// The answer is not what the API documents.
    #[error("{action}: cannot read the answer: {message}")]
    Unreadable {
        /// The call.
        action: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// There are no credentials.
    #[error(
        "no AWS credentials: {0}; give the Pod a role (pod identity or IRSA), or set AWS_PROFILE or AWS_ACCESS_KEY_ID"
    )]
    NoCredentials(String),
    /// No region is known.
    #[error("no AWS region: set aws.region (VENEER_AWS_REGION) or AWS_REGION")]
    NoRegion,
}

const THROTTLED: [&str; 8] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "SlowDown",
];
const EXPIRED: [&str; 4] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "TokenRefreshRequired",
];
const SKEWED: [&str; 5] = [
    "RequestTimeTooSkewed",
    "RequestExpired",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "AuthFailure",
];

impl Error {
    /// AWS's code, if it answered.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            _ => "",
        }
    }

    /// Whether AWS asks to come back later.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        THROTTLED.contains(&self.code())
    }

    /// Whether the thing that was named does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        let code = self.code();
        code.contains("NotFound") || matches!(code, "NoSuchEntity" | "QueueDoesNotExist")
    }

    /// Whether the refusal is about what the request names, so that another request may do better at once.
    pub(crate) fn is_about_content(&self) -> bool {
        matches!(self, Self::Refused { .. })
            && !self.may_pass()
            && !self.is_expired()
            && !self.may_be_skewed()
    }

    /// What a person has to do before the same call can succeed, if that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Refused { code, message, .. } if code == "OperationNotPermitted" => {
                let attribute = |name: &str| message.contains(name);
                if attribute("disableApiTermination") {
                    Some("disable its termination protection (DisableApiTermination)")
                } else if attribute("disableApiStop") {
                    Some("disable its stop protection (DisableApiStop)")
                } else {
                    Some("find out what protects it and remove that")
                }
            }
            Self::Refused { code, .. } if code == "UnauthorizedOperation" => Some(
                "compare the controller's role with what `veneer iam-policy` prints, and the instance's tags with it",
            ),
            _ => None,
        }
    }

    /// Whether other credentials may do.
    pub(crate) fn is_expired(&self) -> bool {
        EXPIRED.contains(&self.code())
    }

    /// Whether our clock may be wrong.
    pub(crate) fn may_be_skewed(&self) -> bool {
        SKEWED.contains(&self.code())
    }

    /// Whether the same call may do better in a while.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => {
                self.is_throttled()
                    || *status >= 500
                    || matches!(self.code(), "InternalError" | "ServiceUnavailable")
            }
            _ => false,
        }
    }

    /// A bounded label for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Refused { .. } if self.is_throttled() => "throttled",
            Self::Refused { .. } if self.is_not_found() => "not_found",
            Self::Refused { .. } => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Unreadable { .. } => "unreadable",
            Self::NoCredentials(_) => "credentials",
            Self::NoRegion => "region",
        }
    }
}
