//! How far commitments are shared. Only the management account of an organization may ask.

use serde::Deserialize;
use serde_json::json;
use veneer_billing::{Sharing, SharingMode};

use super::read::{follow, unreadable};
use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    billing_preferences: Vec<Preference>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preference {
    feature: String,
    key: String,
    value: String,
    #[serde(default)]
    account_id: Option<String>,
}

impl Client {
    /// The accounts for which sharing is switched off. The API does not say which accounts form groups.
    pub(super) async fn sharing(&self) -> Result<Sharing, Error> {
        let call = Call::GetBillingPreferences;
        let unreadable = unreadable(call);
        let mut request = json!({"features": ["RI_SHARING"], "maxResults": 50});
        let (mut sharing, mut before) = (Sharing::default(), String::new());
        loop {
            let page: Page = self.json(call, &request).await?;
            for preference in page.billing_preferences {
                read(preference, &mut sharing);
            }
            match page.next_token.filter(|token| !token.is_empty()) {
                Some(next) => follow(&mut request, "nextToken", &next, &mut before).map_err(&unreadable)?,
                None => return Ok(sharing),
            }
        }
    }
}

fn read(preference: Preference, sharing: &mut Sharing) {
    if preference.feature != "RI_SHARING" || preference.value != "DISABLED" {
        return;
    }
    let is_account = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    let account = preference.account_id.unwrap_or_default();
    let account = match is_account(&account) {
        true => account,
        false => preference.key,
    };
    match account.as_str() {
        account if is_account(account) => drop(sharing.excluded.insert(account.to_owned())),
        // For everybody.
        "*" => sharing.mode = SharingMode::Off,
        // What the API does not document changes nothing.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_do_not_share_are_named_by_id_or_by_key() {
        let preference = |key: &str, value: &str, account: Option<&str>| Preference {
            feature: "RI_SHARING".to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            account_id: account.map(str::to_owned),
        };
        let mut sharing = Sharing::default();
        read(
            preference("account", "DISABLED", Some("111111111111")),
            &mut sharing,
        );
        read(preference("222222222222", "DISABLED", None), &mut sharing);
        read(preference("333333333333", "ENABLED", None), &mut sharing);
        read(preference("something else", "DISABLED", None), &mut sharing);
        assert_eq!(sharing.mode, SharingMode::Organization);
        assert_eq!(
            sharing.excluded.into_iter().collect::<Vec<_>>(),
            ["111111111111", "222222222222"]
        );
    }
}
