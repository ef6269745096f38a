//! A running cluster: the parts in order, their restarts, and the answers a test needs to reach them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::certs::Identity;
use crate::error::LogTail;
use crate::folder::{self, Folder};
use crate::http::Http;
use crate::launch::{self, Site};
use crate::ports::Ports;
use crate::process::Process;
use crate::{Error, Options, Part, part};

/// How often a condition is looked at while it is waited for.
const POLL: Duration = Duration::from_millis(20);
/// How many blocks of ports a part may find taken before that is an error.
const PORT_RETRIES: usize = 5;

/// A running cluster. Dropping it ends every part and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in this order: the parts end before their folder and their ports are given up.
    running: BTreeMap<Part, Process>,
    ports: BTreeMap<Part, Arc<Ports>>,
    http: Http,
    identity: Identity,
    folder: Folder,
    options: Options,
}

impl Cluster {
    /// Starts the parts and waits until each is ready.
    pub fn start(options: Options) -> Result<Self, Error> {
        Self::start_and_tell(options, |_, _| {})
    }

    /// Like [`start`](Self::start), and calls `ready` for each part with the time it took.
    pub fn start_and_tell(options: Options, ready: impl FnMut(Part, Duration)) -> Result<Self, Error> {
        Self::start_on(Ports::claim()?, options, ready)
    }

    fn start_on(
        ports: Ports,
        options: Options,
        mut ready: impl FnMut(Part, Duration),
    ) -> Result<Self, Error> {
        for part in &options.parts {
            part.binary()?;
        }
        let folder = Folder::create()?;
        let identity = Identity::create(&folder)?;
        let http = Http::new(&identity.ca_pem, &identity.admin_token)?;
        let ports = Arc::new(ports);
        let ports = options
            .parts
            .iter()
            .map(|part| (*part, Arc::clone(&ports)))
            .collect();
        let mut cluster = Cluster {
            running: BTreeMap::new(),
            ports,
            http,
            identity,
            folder,
            options,
        };

        let parts = cluster.options.parts.clone();
        let (store, clients): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| *part <= Part::ApiServer);
        for part in store {
            let began = Instant::now();
            cluster.launch(part)?;
            cluster.wait_until_ready(part, PORT_RETRIES)?;
            ready(part, began.elapsed());
        }
        if clients.contains(&Part::Karpenter) {
            cluster.install_crds(&part::karpenter_crds()?)?;
        }
        // These do not wait for one another, so they start together.
        let began = Instant::now();
        for part in &clients {
            cluster.launch(*part)?;
        }
        for part in clients {
            cluster.wait_until_ready(part, PORT_RETRIES)?;
            ready(part, began.elapsed());
        }
        Ok(cluster)
    }

    /// The path of a kubeconfig with all rights, valid while the cluster runs.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The same for another user, `provisioner`, whose requests the audit log tells from all others; Karpenter uses it.
    pub fn provisioner_kubeconfig_path(&self) -> PathBuf {
        self.folder.join("provisioner.kubeconfig")
    }

    /// The environment for a program that shall talk to this cluster.
    pub fn env(&self) -> [(&'static str, PathBuf); 1] {
        [("KUBECONFIG", self.kubeconfig_path())]
    }

    /// The address of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port(Part::ApiServer))
    }

    /// The address of Prometheus.
    pub fn prometheus_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port(Part::Prometheus))
    }

    /// The address of the AWS that moto plays.
    pub fn aws_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port(Part::Moto))
    }

    /// The port that Prometheus scrapes; whoever has metrics to be scraped listens there.
    pub fn exporter_port(&self) -> u16 {
        let ports = self.ports.get(&Part::Prometheus);
        ports
            .map(|ports| launch::second_port(Part::Prometheus, ports))
            .unwrap_or_default()
    }

    /// The port on which Karpenter answers `/metrics`.
    pub fn karpenter_metrics_port(&self) -> u16 {
        let ports = self.ports.get(&Part::Karpenter);
        ports
            .map(|ports| launch::second_port(Part::Karpenter, ports))
            .unwrap_or_default()
    }

    /// The folder with the data, the certificates and one `<part>.log` per part.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What service accounts have asked an audited API server for so far: events of `audit.k8s.io/v1`.
    pub fn requests(&self) -> Vec<serde_json::Value> {
        let is_account = |event: &serde_json::Value| {
            let user = event.pointer("/user/username").and_then(|user| user.as_str());
            user.is_some_and(|user| user.starts_with("system:serviceaccount:"))
        };
        self.audit().filter(is_account).collect()
    }

    /// What the user of [`provisioner_kubeconfig_path`](Self::provisioner_kubeconfig_path) has asked an audited API server
    /// for so far: events of `audit.k8s.io/v1`. A watch counts when it begins and when it ends.
    pub fn provisioner_requests(&self) -> Vec<serde_json::Value> {
        let is_provisioner = |event: &serde_json::Value| {
            event.pointer("/user/username").and_then(|user| user.as_str()) == Some("provisioner")
        };
        self.audit().filter(is_provisioner).collect()
    }

    /// Who created, bound, evicted or deleted a pod so far, as an audited API server has answered it, in order of time.
    pub fn pod_movements(&self) -> Vec<serde_json::Value> {
        let text = |event: &serde_json::Value, at: &str| {
            let text = event.pointer(at).and_then(|text| text.as_str());
            text.unwrap_or_default().to_owned()
        };
        let is_pod = |event: &serde_json::Value| {
            let moves = ["create", "delete", "deletecollection"];
            text(event, "/objectRef/resource") == "pods" && moves.contains(&text(event, "/verb").as_str())
        };
        let mut events: Vec<_> = self.audit().filter(is_pod).collect();
        events.sort_by_key(|event| text(event, "/stageTimestamp"));
        events
    }

    fn audit(&self) -> impl Iterator<Item = serde_json::Value> {
        let text = std::fs::read_to_string(self.folder.join("audit.log")).unwrap_or_default();
        // The last line may be incomplete.
        let events: Vec<_> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        events.into_iter()
    }

    /// Everything a part has written so far, over all its starts; empty for a part that never ran.
    pub fn log_of(&self, part: Part) -> String {
        std::fs::read(self.log_path(part))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The process ids of the parts that were started and not stopped.
    pub fn process_ids(&self) -> BTreeMap<Part, u32> {
        self.running
            .iter()
            .map(|(part, process)| (*part, process.id()))
            .collect()
    }

    /// Kills a part, as a crash would. Does nothing to a part that is stopped already.
    pub fn stop_part(&mut self, part: Part) {
        self.running.remove(&part);
    }

    /// Starts a stopped part again, on its ports and data, and waits until it is ready.
    pub fn start_part(&mut self, part: Part) -> Result<(), Error> {
        if !self.options.parts.contains(&part) {
            return Err(Error::NotInCluster(part));
        }
        self.stop_part(part);
        self.launch(part)?;
        self.wait_until_ready(part, 0)
    }

    /// An error for the first part that has ended by itself, if any has.
    pub fn check(&mut self) -> Result<(), Error> {
        for (part, process) in &mut self.running {
            if let Some(status) = process.ended()? {
                return Err(Error::Ended {
                    part: *part,
                    status,
                    log: LogTail::of(&process.log()),
                });
            }
        }
        Ok(())
    }

    /// Creates CustomResourceDefinitions, one per text, and waits until the API server serves them.
    pub fn install_crds(&self, texts: &[impl AsRef<str>]) -> Result<(), Error> {
        let collection = format!(
            "{}/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            self.url()
        );
        let mut names = Vec::new();
        for text in texts {
            let (status, answer) =
                self.http
                    .post_yaml(&collection, text.as_ref())
                    .map_err(|error| Error::Refused {
                        what: format!("POST {collection}"),
                        answer: error.to_string(),
                    })?;
            let object: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
            match object
                .pointer("/metadata/name")
                .and_then(serde_json::Value::as_str)
            {
                Some(name) if status == 201 => names.push(name.to_owned()),
                _ => {
                    return Err(Error::Refused {
                        what: "a CustomResourceDefinition".to_owned(),
                        answer,
                    });
                }
            }
        }
        let deadline = Instant::now() + self.options.ready_within;
        for name in names {
            while !self.is_served(&format!("{collection}/{name}")) {
                if Instant::now() > deadline {
                    return Err(Error::Refused {
                        what: format!("to serve CustomResourceDefinition {name}"),
                        answer: format!("no list of it after {:?}", self.options.ready_within),
                    });
                }
                thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Whether the objects of a definition can be listed; one that is established may still be warming up.
    fn is_served(&self, url: &str) -> bool {
        let Ok((200, answer)) = self.http.get(url) else {
            return false;
        };
        let object: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let list = |path: &str| object.pointer(path).and_then(serde_json::Value::as_array);
        let text = |path: &str| object.pointer(path).and_then(serde_json::Value::as_str);
        let is_established = list("/status/conditions").is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        });
        let (Some(group), Some(plural)) = (text("/spec/group"), text("/spec/names/plural")) else {
            return false;
        };
        let is_listed = |version: &serde_json::Value| {
            let version = version["name"].as_str().unwrap_or_default();
            let list = format!("{}/apis/{group}/{version}/{plural}?limit=1", self.url());
            matches!(self.http.get(&list), Ok((200, _)))
        };
        let mut versions = list("/spec/versions").into_iter().flatten();
        is_established && versions.all(|version| version["served"] != true || is_listed(version))
    }

    fn launch(&mut self, part: Part) -> Result<(), Error> {
        let Some(ports) = self.ports.get(&part) else {
            return Err(Error::NotInCluster(part));
        };
        let site = Site {
            folder: &self.folder,
            identity: &self.identity,
            etcd: self.port(Part::Etcd),
            options: &self.options,
        };
        let invocation = launch::invocation(part, ports, &site)?;
        if part == Part::ApiServer {
            let (port, identity) = (self.port(part), &self.identity);
            for (name, token) in [
                ("kubeconfig", &identity.admin_token),
                ("provisioner.kubeconfig", &identity.provisioner_token),
            ] {
                self.folder.write(name, identity.kubeconfig(port, token))?;
            }
        }
        let process = Process::start(part, &invocation, &self.log_path(part))?;
        self.running.insert(part, process);
        Ok(())
    }

    fn wait_until_ready(&mut self, part: Part, mut port_retries: usize) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.ready_within;
        loop {
            let urls = launch::readiness(part, self.port(part));
            let Some(process) = self.running.get_mut(&part) else {
                return Err(Error::NotInCluster(part));
            };
            if let Some(status) = process.ended()? {
                let log = process.log();
                if port_retries > 0 && log.contains("address already in use") {
                    port_retries -= 1;
                    self.ports.insert(part, Arc::new(Ports::claim()?));
                    self.launch(part)?;
                    continue;
                }
                return Err(Error::Ended {
                    part,
                    status,
                    log: LogTail::of(&log),
                });
            }
            let not_yet = urls.iter().find_map(|url| match self.http.get(url) {
                Ok((200, _)) => None,
                Ok((status, body)) => Some(format!("GET {url} answered {status}: {body}")),
                Err(error) => Some(format!("GET {url}: {error}")),
            });
            let Some(answer) = not_yet else { return Ok(()) };
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped(part));
            }
            if Instant::now() > deadline {
                let log = LogTail::of(&process.log());
                return Err(Error::NotReady {
                    part,
                    within: self.options.ready_within,
                    answer,
                    log,
                });
            }
            thread::sleep(POLL);
        }
    }

    fn port(&self, part: Part) -> u16 {
        self.ports
            .get(&part)
            .map(|ports| launch::port(part, ports))
            .unwrap_or_default()
    }

    fn log_path(&self, part: Part) -> PathBuf {
        self.folder.join(format!("{part}.log"))
    }
}

impl Drop for Cluster {
    /// A test that fails takes its cluster down with it; what the parts wrote is then worth keeping.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.running.clear();
        let kept = part::cache().map(|cache| folder::keep_logs(self.folder.path(), &cache.join("logs")));
        if let Ok(Ok(place)) = kept {
            // Nothing can be done about a closed standard error.
            let _ = writeln!(
                io::stderr(),
                "testbed: the logs of the failed test's cluster are in {}",
                place.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_part_whose_port_is_taken_starts_on_another_one() {
        // The ports above the one that the system gave are very likely free, and the test does not need them to be.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = Ports::unchecked(taken.local_addr().unwrap().port());
        let occupied = launch::port(Part::Etcd, &ports);
        assert_eq!(occupied, taken.local_addr().unwrap().port());

        let cluster = Cluster::start_on(ports, Options::api_server(), |_, _| {}).unwrap();

        assert_ne!(cluster.port(Part::Etcd), occupied);
        assert!(cluster.log_of(Part::Etcd).contains("address already in use"));
    }

    #[test]
    fn a_part_that_is_not_ready_in_time_is_an_error_with_its_last_answer() {
        let limit = Duration::from_millis(1);
        let error = Cluster::start(Options::api_server().ready_within(limit)).unwrap_err();
        // Most often etcd; it may answer in time where this process had to wait for a core.
        let Error::NotReady { part, .. } = &error else {
            panic!("{error}")
        };
        let told = format!("{part} was not ready after 1ms: GET http");
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}
