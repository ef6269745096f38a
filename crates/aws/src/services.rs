//! The few calls to other services: parameters (SSM), messages (SQS), instance profiles (IAM).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::call::Call;
use crate::client::Client;
use crate::ec2::parse;
use crate::error::Error;
use crate::wire::{field, find, items};

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub body: String,
    /// With this it is deleted.
    pub receipt: String,
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Client {
    /// The value of a parameter; none if there is no such parameter.
    pub(crate) async fn parameter(&self, name: &str) -> Result<Option<String>, Error> {
        match self
            .json::<Value>(Call::GetParameter, &json!({"Name": name}))
            .await
        {
            Ok(answer) => {
                let value = answer.pointer("/Parameter/Value").and_then(Value::as_str);
                Ok(value.map(str::to_owned))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The address of a queue.
    pub async fn queue_url(&self, name: &str) -> Result<String, Error> {
        let answer: Value = self.json(Call::GetQueueUrl, &json!({"QueueName": name})).await?;
        Ok(text(&answer, "QueueUrl").to_owned())
    }

    /// Waits up to `seconds` for messages, at most ten.
    pub async fn receive(&self, queue: &str, seconds: u32) -> Result<Vec<Message>, Error> {
        let request = json!({
            "QueueUrl": queue, "MaxNumberOfMessages": 10, "WaitTimeSeconds": seconds, "VisibilityTimeout": 20,
        });
        let answer: Value = self.json(Call::ReceiveMessage, &request).await?;
        let messages = answer.get("Messages").and_then(Value::as_array);
        let messages = messages.into_iter().flatten().map(|one| Message {
            body: text(one, "Body").to_owned(),
            receipt: text(one, "ReceiptHandle").to_owned(),
        });
        Ok(messages.collect())
    }

    /// Deletes messages, at most ten.
    pub async fn delete_messages(&self, queue: &str, messages: &[Message]) -> Result<(), Error> {
        let entries: Vec<Value> = messages
            .iter()
            .enumerate()
            .map(|(at, one)| json!({"Id": at.to_string(), "ReceiptHandle": one.receipt}))
            .collect();
        let request = json!({"QueueUrl": queue, "Entries": entries});
        self.json::<Value>(Call::DeleteMessage, &request)
            .await
            .map(|_| ())
    }

    /// The roles of an instance profile; none if there is no such profile.
    pub(crate) async fn profile_roles(&self, name: &str) -> Result<Option<Vec<String>>, Error> {
        let request = json!({"InstanceProfileName": name});
        let answer = match self.query(Call::GetInstanceProfile, &request).await {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let document = parse(Call::GetInstanceProfile, &answer)?;
        let profile = find(document.root(), "InstanceProfile");
        let roles = profile.map(|one| items(one, "Roles")).unwrap_or_default();
        Ok(Some(
            roles.into_iter().map(|role| field(role, "RoleName")).collect(),
        ))
    }

    /// Makes an instance profile with a role, or completes one that a crash left behind.
    pub(crate) async fn ensure_profile(
        &self,
        name: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        // A role may be given with its path; profiles know it by name.
        let role = role.rsplit('/').next().unwrap_or(role);
        let roles = self.profile_roles(name).await?;
        if roles.is_none() {
            let tags: Vec<Value> = tags
                .iter()
                .map(|(key, value)| json!({"Key": key, "Value": value}))
                .collect();
            let request = json!({"InstanceProfileName": name, "Path": "/veneer/", "Tags": {"member": tags}});
            match self.query(Call::CreateInstanceProfile, &request).await {
                Err(error) if error.code() == "EntityAlreadyExists" => {}
                other => drop(other?),
            }
        }
        if roles.is_some_and(|roles| roles.iter().any(|one| one == role)) {
            return Ok(());
        }
        let request = json!({"InstanceProfileName": name, "RoleName": role});
        match self.query(Call::AddRoleToInstanceProfile, &request).await {
            // A profile has one role at most, and this one's name says which.
            Err(error) if error.code() == "LimitExceeded" => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Deletes an instance profile; one that is gone is fine.
    pub(crate) async fn delete_profile(&self, name: &str) -> Result<(), Error> {
        for role in self.profile_roles(name).await?.unwrap_or_default() {
            let request = json!({"InstanceProfileName": name, "RoleName": role});
            self.query(Call::RemoveRoleFromInstanceProfile, &request).await?;
        }
        let request = json!({"InstanceProfileName": name});
        match self.query(Call::DeleteInstanceProfile, &request).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }
}
