//! Who may look at decisions and change an embedded world: callers that named this server by an address of its own.
//!
//! A web page can make the browser of a person beside this server send requests to it. By the name under which it does
//! (DNS rebinding) or by the page that it says it comes from (cross-site requests), such a request is told apart. Metrics and
//! probes are open to all: they change nothing, and scrapers use names that nobody here knows.

use std::net::{IpAddr, SocketAddr};

/// Why a request is refused. `local` is where it arrived.
pub(super) fn refusal(
    path: &str,
    host: Option<&str>,
    origin: Option<&str>,
    local: SocketAddr,
) -> Option<String> {
    if path != "/apply" && !path.starts_with("/debug/") {
        return None;
    }
    let Some(host) = host else {
        return Some(format!(
            "{path} needs a Host header that names this server's address"
        ));
    };
    if !is_own(host, local.ip()) {
        return Some(format!(
            "{path} is not served to Host {host:?}: use localhost, 127.0.0.1 or [::1] (kubectl port-forward), or the address {}",
            local.ip().to_canonical()
        ));
    }
    let origin = origin?;
    let is_same = origin
        .split_once("://")
        .is_some_and(|(_, site)| site.eq_ignore_ascii_case(host));
    (!is_same).then(|| {
        format!("{path} is not served to pages of other sites: Origin {origin:?} is not http://{host}")
    })
}

/// Whether a Host header names this machine, or the address on which the request arrived.
fn is_own(host: &str, local: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    match name.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address == local.to_canonical()
        }
        Err(_) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 3] = ["/apply", "/debug/decisions", "/debug/pending"];

    fn refused(host: Option<&str>, origin: Option<&str>) -> Vec<Option<String>> {
        let local = "[::ffff:10.0.0.7]:8080".parse().unwrap();
        PATHS.map(|path| refusal(path, host, origin, local)).to_vec()
    }

    #[test]
    fn a_caller_names_this_machine_or_the_address_that_it_reached() {
        for host in [
            "localhost",
            "localhost:8080",
            "LOCALHOST.:1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "10.0.0.7:8080",
            "[::ffff:10.0.0.7]:8080",
        ] {
            assert_eq!(refused(Some(host), None), [None, None, None], "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "10.0.0.8:8080",
            "127.0.0.1.evil.example",
            "",
            "[",
            "0",
        ] {
            for why in refused(Some(host), None) {
                let why = why.unwrap_or_else(|| panic!("{host} is served"));
                assert!(
                    why.contains(&format!("{host:?}")) && why.contains("127.0.0.1"),
                    "{why}"
                );
            }
        }
        assert!(refused(None, None).iter().all(Option::is_some));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = Some("localhost:8080");
        assert_eq!(refused(host, Some("http://localhost:8080")), [None, None, None]);
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:3000",
            "http://localhost",
            "localhost:8080",
            "",
        ] {
            for why in refused(host, Some(origin)) {
                assert!(
                    why.is_some_and(|why| why.contains(&format!("{origin:?}"))),
                    "{origin}"
                );
            }
        }
    }

    #[test]
    fn metrics_and_probes_are_open_to_all() {
        let local = "10.0.0.7:8080".parse().unwrap();
        for path in ["/metrics", "/healthz", "/readyz", "/", "/debug"] {
            assert_eq!(
                refusal(path, Some("veneer.veneer-system"), Some("null"), local),
                None
            );
        }
    }
}
