//! AWS as a double of ours plays it, for what moto lacks and for many instances: EC2 lists, Savings Plans, the price list, billing
//! preferences and STS, with the wire format of each, over plain HTTP on loopback.
//!
//! Who calls is read from the signature: the access key says which account, its scope which region and service. A request that is not
//! signed as it must be is refused as AWS refuses it. The signature itself is not computed; moto does that (`parts/moto`).

mod answer;
mod described;
mod ec2;
mod faults;
mod json;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use self::answer::Answer;
pub use self::described::{
    Described, DescribedAccount, DescribedCapacity, DescribedInstance, DescribedPlan, DescribedPrice,
    DescribedRate, DescribedRegion, DescribedReserved, DescribedSpot,
};
pub use self::faults::{Fault, Trouble};
use crate::Error;

/// A running double. It answers until the process ends.
#[derive(Debug)]
pub struct AwsDouble {
    port: u16,
    state: Arc<Mutex<State>>,
}

/// A request that the double saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose credentials it was made with; empty if nobody's.
    pub account: String,
    /// The region of its signature.
    pub region: String,
    /// The service of its signature.
    pub service: String,
    /// The call.
    pub action: String,
    /// What went wrong on demand.
    pub fault: Option<Fault>,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
}

#[derive(Debug)]
struct State {
    described: Described,
    /// Access keys of roles: the account, and the token that must come with them.
    sessions: BTreeMap<String, (String, String)>,
    expired: BTreeSet<String>,
    troubles: Vec<Trouble>,
    seen: Vec<Seen>,
    noted: BTreeSet<String>,
    /// When credentials of roles expire.
    expiration: String,
}

/// A request as it came.
#[derive(Debug, Default)]
struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

/// What is done with the answer.
#[derive(Debug)]
enum Reply {
    Whole(Answer),
    /// Half of it, and it says that this is all.
    Truncated(Answer),
    /// Half of it, and the connection ends.
    Dropped(Answer),
    Never,
}

impl AwsDouble {
    /// Starts one that plays this organization.
    pub fn start(described: Described) -> Result<Self, Error> {
        let state = State {
            described,
            sessions: BTreeMap::new(),
            expired: BTreeSet::new(),
            troubles: Vec::new(),
            seen: Vec::new(),
            noted: BTreeSet::new(),
            expiration: "2100-01-01T00:00:00Z".to_owned(),
        };
        let state = Arc::new(Mutex::new(state));
        let port = server::start(Arc::clone(&state))?;
        Ok(Self { port, state })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Access key and secret of an account.
    #[must_use]
    pub fn keys(account: &str) -> (String, String) {
        (format!("AKIA{account}"), "secret".to_owned())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets something go wrong from now on.
    pub fn trouble(&self, trouble: Trouble) {
        self.state().troubles.push(trouble);
    }

    /// Everything is fine again.
    pub fn calm(&self) {
        self.state().troubles.clear();
    }

    /// Changes what it plays.
    pub fn change(&self, change: impl FnOnce(&mut Described)) {
        change(&mut self.state().described);
    }

    /// The requests that it saw so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the header says about a signature.
#[derive(Debug, Default)]
struct Signature {
    key: String,
    region: String,
    service: String,
    signed: Vec<String>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    fn signature(&self) -> Option<Signature> {
        let rest = self.header("authorization").strip_prefix("AWS4-HMAC-SHA256 ")?;
        let parts: BTreeMap<&str, &str> = rest
            .split(',')
            .filter_map(|part| part.trim().split_once('='))
            .collect();
        let scope: Vec<&str> = parts.get("Credential")?.split('/').collect();
        let [key, date, region, service, "aws4_request"] = scope.as_slice() else {
            return None;
        };
        let is_hex = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.get("Signature").filter(|text| is_hex(text))?;
        self.header("x-amz-date").strip_prefix(*date)?;
        Some(Signature {
            key: (*key).to_owned(),
            region: (*region).to_owned(),
            service: (*service).to_owned(),
            signed: parts
                .get("SignedHeaders")?
                .split(';')
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// In which region a service is signed for; none for that of the client.
fn is_signed_for(service: &str, region: &str) -> bool {
    match service {
        "savingsplans" | "billing" => region == "us-east-1",
        "pricing" => matches!(region, "us-east-1" | "eu-central-1" | "ap-south-1"),
        _ => true,
    }
}

impl State {
    /// Answers a request, or says how it goes wrong.
    fn reply(&mut self, request: &Request) -> Reply {
        let signature = request.signature().unwrap_or_default();
        let service = signature.service.clone();
        let form = ec2::form(&request.body);
        let target = request.header("x-amz-target");
        let action = match service.as_str() {
            "ec2" | "sts" => form.get("Action").cloned().unwrap_or_default(),
            "savingsplans" => request.path.trim_start_matches('/').to_owned(),
            _ => target.rsplit('.').next().unwrap_or_default().to_owned(),
        };
        self.note(request, &service, &action);
        let caller = self.caller(&signature, request);
        let account = caller.as_deref().unwrap_or_default().to_owned();
        // A role is in trouble where its account is.
        let hit = match form.get("RoleArn") {
            Some(arn) => arn.split(':').nth(4).unwrap_or_default().to_owned(),
            None => account.clone(),
        };
        let mut troubles = self.troubles.iter_mut();
        let fault = troubles.find_map(|one| one.hits(&hit, &signature.region, &action).then_some(one.fault));
        let refuse =
            |(status, code, message): (u16, &str, String)| Answer::refusal(&service, status, code, &message);
        let is_ec2 = service == "ec2";
        let answer = match (fault, caller) {
            (_, Err(refusal)) => refuse(refusal),
            (Some(Fault::Denied), _) => {
                let code = match service.as_str() {
                    "ec2" => "UnauthorizedOperation",
                    "sts" => "AccessDenied",
                    _ => "AccessDeniedException",
                };
                refuse((403, code, format!("You are not authorized to perform {action}")))
            }
            (Some(Fault::Throttled), _) if is_ec2 => {
                refuse((503, "RequestLimitExceeded", "Request limit exceeded.".to_owned()))
            }
            (Some(Fault::Throttled), _) => refuse((400, "ThrottlingException", "Rate exceeded".to_owned())),
            (Some(Fault::Expired), _) => {
                self.expired.insert(signature.key.clone());
                refuse(expired(&service))
            }
            (Some(Fault::Html), _) => Answer {
                status: 500,
                kind: "text/html",
                error: None,
                body: "<!DOCTYPE html><html><head><title>500</title></head><body><br>Internal Server Error</body></html>"
                    .to_owned(),
            },
            (_, Ok(account)) => self.answer(request, &signature, &action, &form, &account),
        };
        let reply = match fault {
            Some(Fault::Hanging) => Reply::Never,
            Some(Fault::Truncated) => Reply::Truncated(answer),
            Some(Fault::Dropped) => Reply::Dropped(answer),
            _ => Reply::Whole(answer),
        };
        self.seen.push(Seen {
            account,
            region: signature.region,
            service,
            action,
            fault,
            status: match &reply {
                Reply::Whole(answer) | Reply::Truncated(answer) | Reply::Dropped(answer) => answer.status,
                Reply::Never => 0,
            },
        });
        reply
    }

    /// The account of a request, or why it is refused.
    fn caller(
        &self,
        signature: &Signature,
        request: &Request,
    ) -> Result<String, (u16, &'static str, String)> {
        let bad = |message: &str| (403, "IncompleteSignature", message.to_owned());
        if signature.key.is_empty() {
            return Err(bad("the request has no signature that can be read"));
        }
        let is_signed = |name: &str| signature.signed.iter().any(|one| one == name);
        if !is_signed("host") || !is_signed("x-amz-date") {
            return Err(bad("host and x-amz-date must be signed"));
        }
        if !is_signed_for(&signature.service, &signature.region) {
            let message = format!("{} is not signed for {}", signature.service, signature.region);
            return Err((403, "SignatureDoesNotMatch", message));
        }
        if self.expired.contains(&signature.key) {
            return Err(expired(&signature.service));
        }
        let token = request.header("x-amz-security-token");
        if let Some((account, expected)) = self.sessions.get(&signature.key) {
            return match token == expected && is_signed("x-amz-security-token") {
                true => Ok(account.clone()),
                false => Err((
                    403,
                    "InvalidClientTokenId",
                    "the token is not that of the key".to_owned(),
                )),
            };
        }
        let mut accounts = self.described.accounts.iter();
        let account = accounts.find(|one| AwsDouble::keys(&one.id).0 == signature.key);
        match account {
            Some(account) => Ok(account.id.clone()),
            None => Err((
                403,
                "InvalidClientTokenId",
                "the access key is not known".to_owned(),
            )),
        }
    }

    fn answer(
        &mut self,
        request: &Request,
        signature: &Signature,
        action: &str,
        form: &ec2::Form,
        account: &str,
    ) -> Answer {
        let service = signature.service.as_str();
        if service == "sts" {
            return self.sts(action, form, account);
        }
        let described = &self.described;
        let Some(account) = described.accounts.iter().find(|one| one.id == account) else {
            return Answer::refusal(service, 403, "AccessDenied", "no such account");
        };
        let body = || serde_json::from_str::<Value>(&request.body).unwrap_or_default();
        let target = request.header("x-amz-target");
        let answer = match service {
            "ec2" => ec2::answer(action, form, described, account, &signature.region),
            "savingsplans" => json::savings_plans(action, &body(), described, account),
            "pricing" if target.starts_with("AWSPriceListService.") => {
                json::pricing(action, &body(), described)
            }
            "billing" if target.starts_with("AWSBilling.") => {
                json::billing(action, &body(), described, account)
            }
            _ => Err(("UnknownOperationException", target.to_owned())),
        };
        answer.unwrap_or_else(|(code, message)| {
            let status = if code.starts_with("AccessDenied") {
                403
            } else {
                400
            };
            Answer::refusal(service, status, code, &message)
        })
    }

    fn sts(&mut self, action: &str, form: &ec2::Form, account: &str) -> Answer {
        match action {
            "GetCallerIdentity" => ec2::identity(account),
            "AssumeRole" => {
                let arn = form.get("RoleArn").map(String::as_str).unwrap_or_default();
                let mut accounts = self.described.accounts.iter();
                let found = accounts.find(|one| {
                    one.role_arn.as_deref() == Some(arn) && one.external_id.as_ref() == form.get("ExternalId")
                });
                let has_name = form.get("RoleSessionName").is_some_and(|name| name.len() >= 2);
                let Some(found) = found.filter(|_| has_name) else {
                    return Answer::refusal(
                        "sts",
                        403,
                        "AccessDenied",
                        "not authorized to perform sts:AssumeRole",
                    );
                };
                let number = self.sessions.len() + 1;
                let (key, token) = (format!("ASIA{number:016}"), format!("token-{number}"));
                self.sessions
                    .insert(key.clone(), (found.id.clone(), token.clone()));
                ec2::assumed(arn, &key, &token, &self.expiration)
            }
            other => Answer::refusal("sts", 400, "InvalidAction", other),
        }
    }

    /// Notes for the whole run of tests which calls were made, as the launcher of moto does. Those of AWS's own SDK are not ours.
    fn note(&mut self, request: &Request, service: &str, action: &str) {
        let line = format!("{service}:{action}");
        if request.header("user-agent").contains("aws-sdk-rust") || !self.noted.insert(line.clone()) {
            return;
        }
        if let Ok(folder) = std::env::var("VENEER_AWS_CALLS") {
            let path = std::path::Path::new(&folder).join(format!("double-{}", std::process::id()));
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            if let Ok(mut file) = file {
                drop(writeln!(file, "{line}"));
            }
        }
    }
}

fn expired(service: &str) -> (u16, &'static str, String) {
    let message = "The security token included in the request is expired".to_owned();
    match service {
        "ec2" => (400, "RequestExpired", message),
        "sts" => (403, "ExpiredToken", message),
        _ => (403, "ExpiredTokenException", message),
    }
}
