//! What goes wrong, on demand.

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller is not allowed.
    Denied,
    /// Too many requests.
    Throttled,
    /// The credentials have expired, and stay so: only others help.
    Expired,
    /// The answer ends in the middle, and says that it is complete.
    Truncated,
    /// The connection ends in the middle of the answer.
    Dropped,
    /// There is no answer.
    Hanging,
    /// A page of HTML about an internal error.
    Html,
}

/// Which requests a fault hits; none matches any.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What goes wrong.
    pub fault: Fault,
    /// The account that is called.
    pub account: Option<String>,
    /// The region of the signature.
    pub region: Option<String>,
    /// The call, such as `DescribeInstances`.
    pub action: Option<String>,
    /// How many requests pass before it.
    pub after: u32,
    /// How many requests it hits.
    pub times: u32,
}

impl Trouble {
    /// One that hits every request, forever.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self {
            fault,
            account: None,
            region: None,
            action: None,
            after: 0,
            times: u32::MAX,
        }
    }

    /// The same for one account only.
    #[must_use]
    pub fn of(mut self, account: &str) -> Self {
        self.account = Some(account.to_owned());
        self
    }

    /// The same for one region only.
    #[must_use]
    pub fn at(mut self, region: &str) -> Self {
        self.region = Some(region.to_owned());
        self
    }

    /// The same for one call only.
    #[must_use]
    pub fn on(mut self, action: &str) -> Self {
        self.action = Some(action.to_owned());
        self
    }

    /// The same, after some requests have passed.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.after = requests;
        self
    }

    /// The same, for some requests only.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.times = requests;
        self
    }

    /// Whether it hits this request; counts it.
    pub(super) fn hits(&mut self, account: &str, region: &str, action: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|one| one == found);
        if !(is(&self.account, account) && is(&self.region, region) && is(&self.action, action)) {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        if self.times == 0 {
            return false;
        }
        if self.times != u32::MAX {
            self.times -= 1;
        }
        true
    }
}
