//! The AWS that moto plays: what tests need to set it up, to make it fail, and to see what it was asked.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Cluster, Error};

/// One running moto, in one region.
#[derive(Debug)]
pub struct Aws {
    url: String,
    region: String,
    agent: ureq::Agent,
}

/// What [`Aws::prepare`] made.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Subnets with their zones.
    pub subnets: Vec<(String, String)>,
    /// A security group.
    pub group: String,
    /// An image for amd64.
    pub image: String,
    /// An image for arm64.
    pub arm_image: String,
    /// The address of the interruption queue.
    pub queue_url: String,
}

/// What the tag of prepared things says.
const DISCOVERY: (&str, &str) = ("karpenter.sh/discovery", "test");

impl Aws {
    /// The one of a cluster.
    pub fn of(cluster: &Cluster, region: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        Aws {
            url: cluster.aws_url(),
            region: region.to_owned(),
            agent,
        }
    }

    /// The environment with which the SDK finds it.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "testing".to_owned()),
        ]
    }

    /// Changes settings of the launcher.
    pub fn control(&self, settings: &Value) -> Result<(), Error> {
        self.post("/_testbed/control", &[], settings.to_string())
            .map(|_| ())
    }

    /// Every request that was made to it, those of tests' own set-up left out.
    pub fn requests(&self) -> Result<Vec<Value>, Error> {
        self.get("requests")
    }

    /// How many requests that were, and how many launches are known by their token.
    pub fn count(&self) -> Result<(usize, usize), Error> {
        self.get("count")
    }

    fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, Error> {
        let mut answer = self
            .agent
            .get(format!("{}/_testbed/{what}", self.url))
            .call()
            .map_err(failed)?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string()
            .map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| Error::Aws(error.to_string()))
    }

    /// A call of EC2 or IAM on the test's own behalf; gives the XML.
    pub fn call(&self, service: &str, action: &str, parameters: &[(&str, &str)]) -> Result<String, Error> {
        let version = if service == "iam" {
            "2010-05-08"
        } else {
            "2016-11-15"
        };
        let mut form = format!("Action={action}&Version={version}");
        for (key, value) in parameters {
            let encoded: String = value
                .bytes()
                .map(|byte| match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                        char::from(byte).to_string()
                    }
                    other => format!("%{other:02X}"),
                })
                .collect();
            form.push_str(&format!("&{key}={encoded}"));
        }
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.post(
            "/",
            &[kind, ("Authorization", &self.authorization(service))],
            form,
        )
    }

    /// A call of SQS on the test's own behalf.
    pub fn sqs(&self, action: &str, body: &Value) -> Result<Value, Error> {
        let target = format!("AmazonSQS.{action}");
        let headers = [
            ("Content-Type", "application/x-amz-json-1.0"),
            ("X-Amz-Target", target.as_str()),
            ("Authorization", &self.authorization("sqs")),
        ];
        let text = self.post("/", &headers, body.to_string())?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    fn authorization(&self, service: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=setup/20260101/{}/{service}/aws4_request, SignedHeaders=host, Signature=0",
            self.region
        )
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: String) -> Result<String, Error> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("User-Agent", "testbed");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = request.send(body).map_err(failed)?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string()
            .map_err(failed)?;
        match answer.status().as_u16() {
            200..300 => Ok(text),
            status => Err(Error::Aws(format!("{status}: {text}"))),
        }
    }

    /// Tags the default network, and makes images, the parameters that name them, a queue and a role.
    pub fn prepare(&self, kubernetes_version: &str) -> Result<Prepared, Error> {
        let found = self.call("ec2", "DescribeSubnets", &[])?;
        let subnets: Vec<(String, String)> = texts(&found, "subnetId")
            .into_iter()
            .zip(texts(&found, "availabilityZone"))
            .collect();
        let group = texts(&self.call("ec2", "DescribeSecurityGroups", &[])?, "groupId");
        let group = group.into_iter().next().unwrap_or_default();
        let ids = subnets.iter().map(|(id, _)| id).chain([&group]);
        for id in ids {
            let tag = [
                ("ResourceId.1", id.as_str()),
                ("Tag.1.Key", DISCOVERY.0),
                ("Tag.1.Value", DISCOVERY.1),
            ];
            self.call("ec2", "CreateTags", &tag)?;
        }
        let image = |name: &str, architecture: &str| {
            let parameters = [
                ("Name", name),
                ("Architecture", architecture),
                ("RootDeviceName", "/dev/xvda"),
            ];
            let made = self.call("ec2", "RegisterImage", &parameters)?;
            Ok::<_, Error>(texts(&made, "imageId").into_iter().next().unwrap_or_default())
        };
        let prepared = Prepared {
            subnets,
            group,
            image: image("node-amd64", "x86_64")?,
            arm_image: image("node-arm64", "arm64")?,
            queue_url: {
                let made = self.sqs("CreateQueue", &json!({"QueueName": "interruptions"}))?;
                made.get("QueueUrl")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            },
        };
        let trust = r#"{"Version":"2012-10-17","Statement":[]}"#;
        self.call(
            "iam",
            "CreateRole",
            &[("RoleName", "node"), ("AssumeRolePolicyDocument", trust)],
        )?;
        let path = |arch: &str| {
            format!(
                "/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/{arch}/standard/recommended/image_id"
            )
        };
        let parameters = json!({(path("x86_64")): prepared.image, (path("arm64")): prepared.arm_image});
        self.control(&json!({"parameters": parameters}))?;
        Ok(prepared)
    }

    /// Every instance that was ever launched: id, state and the value of a tag.
    pub fn instances(&self, tag: &str) -> Result<Vec<(String, String, String)>, Error> {
        let mut found = Vec::new();
        let mut token = String::new();
        loop {
            let mut parameters = vec![("MaxResults", "1000")];
            if !token.is_empty() {
                parameters.push(("NextToken", &token));
            }
            let page = self.call("ec2", "DescribeInstances", &parameters)?;
            let document =
                roxmltree::Document::parse(&page).map_err(|error| Error::Aws(error.to_string()))?;
            let sets = document
                .descendants()
                .filter(|one| one.has_tag_name_of("instancesSet"));
            for one in sets.flat_map(|set| set.children().filter(roxmltree::Node::is_element)) {
                let tags = one.element("tagSet").into_iter().flat_map(|set| set.children());
                let mut tags = tags.filter(|item| item.value("key") == tag);
                let state = one.element("instanceState").map(|state| state.value("name"));
                let value = tags.next().map(|item| item.value("value"));
                found.push((
                    one.value("instanceId"),
                    state.unwrap_or_default(),
                    value.unwrap_or_default(),
                ));
            }
            token = texts(&page, "nextToken").into_iter().next().unwrap_or_default();
            if token.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// Questions about an element, whatever its namespace.
trait Element: Sized {
    fn has_tag_name_of(&self, name: &str) -> bool;
    fn element(&self, name: &str) -> Option<Self>;
    fn value(&self, name: &str) -> String;
}

impl Element for roxmltree::Node<'_, '_> {
    fn has_tag_name_of(&self, name: &str) -> bool {
        self.tag_name().name() == name
    }

    fn element(&self, name: &str) -> Option<Self> {
        self.children().find(|one| one.has_tag_name_of(name))
    }

    fn value(&self, name: &str) -> String {
        let found = self.element(name).and_then(|one| one.text());
        found.unwrap_or_default().to_owned()
    }
}

fn failed(error: ureq::Error) -> Error {
    Error::Aws(error.to_string())
}

/// The texts of all elements of a name; enough of XML for set-up.
fn texts(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let after = xml.split(&open).skip(1);
    after
        .filter_map(|text| Some(text.split_once(&close)?.0.to_owned()))
        .collect()
}
