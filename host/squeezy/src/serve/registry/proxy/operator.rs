//! The proxies that the operator has for the daemon, in variables of its environment that skopeo would read, too.

use super::{super::reference::split_port, request::Head, target::Target};
use base64::{Engine, prelude::BASE64_STANDARD};
use ipnet::IpNet;
use std::{io, net::IpAddr};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use ureq::{Proxy, ProxyProtocol};

/// Which proxy leads where.
#[derive(Default)]
pub struct OperatorsProxies {
    /// For plain HTTP.
    http: Option<Upstream>,
    /// For all else.
    https: Option<Upstream>,
    /// Hosts that are reached without one, separated by commas.
    except: String,
}

/// A proxy of the operator's.
pub struct Upstream {
    host: String,
    port: u16,
    /// What it wants to see, as a header; empty if nothing.
    header: String,
}

impl OperatorsProxies {
    /// Those that the variables name; says what is wrong with them otherwise.
    pub fn in_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let value = |name: &str| {
            let given = |name: &str| variable(name).filter(|value| !value.is_empty());
            given(name).or_else(|| given(&name.to_ascii_lowercase()))
        };
        let upstream = |name| value(name).map(|url| Upstream::parse(name, &url)).transpose();
        let except = value("NO_PROXY").unwrap_or_default();
        Ok(Self { http: upstream("HTTP_PROXY")?, https: upstream("HTTPS_PROXY")?, except })
    }

    /// The one that leads there; `None` if nobody has to be asked.
    pub fn leading_to(&self, target: &Target, is_plain: bool) -> Option<&Upstream> {
        let upstream = if is_plain { &self.http } else { &self.https };
        let is_excepted = || self.except.split(',').any(|one| covers(one.trim(), target));
        upstream.as_ref().filter(|_| !target.is_loopback() && !is_excepted())
    }
}

/// Whether a host of `NO_PROXY` is this one: `*`, an address, a network, or a domain with all that is in it.
fn covers(one: &str, target: &Target) -> bool {
    let address = target.address();
    if let Ok(one) = one.parse::<IpAddr>() {
        return address == Some(one);
    }
    if let Ok(network) = one.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    let (host, port) = split_port(one);
    if port.is_some_and(|port| port.parse::<u16>() != Ok(target.port)) {
        return false;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let is_within =
        |domain: &str| target.host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    match host.strip_prefix("*.").or(host.strip_prefix('.')) {
        Some(domain) => !domain.is_empty() && is_within(domain),
        None => host == "*" || host == target.host || (!host.is_empty() && is_within(&host)),
    }
}

impl Upstream {
    /// Parses the value of a variable.
    fn parse(name: &str, url: &str) -> Result<Self, String> {
        // It may have a password, and is not shown.
        let wrong = || format!("{name} in the daemon's environment must be http://HOST:PORT");
        let proxy = Proxy::new(url).map_err(|_| wrong())?;
        if proxy.protocol() != ProxyProtocol::Http {
            return Err(wrong());
        }
        let header = match (proxy.username(), proxy.password()) {
            (None, None) => String::new(),
            (name, password) => {
                let both = [name.unwrap_or_default(), password.unwrap_or_default()].join(":");
                format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(both))
            }
        };
        let host = proxy.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: proxy.port(), header })
    }

    /// The header with what it wants to see, if anything.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Connects to it.
    pub async fn open(&self) -> io::Result<TcpStream> {
        TcpStream::connect((&*self.host, self.port)).await
    }

    /// Asks it for a connection; returns that, and what has already arrived on it.
    pub async fn connect(&self, target: &Target) -> io::Result<(TcpStream, Vec<u8>)> {
        let mut stream = self.open().await?;
        let header = &self.header;
        let asked = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n");
        stream.write_all(asked.as_bytes()).await?;
        let answer = Head::read(&mut stream).await;
        let answer = answer.map_err(|_| io::Error::other("it does not answer as a proxy does"))?;
        match answer.text.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok((stream, answer.rest)),
            status => {
                let status: String = status.unwrap_or_default().chars().take(3).collect();
                Err(io::Error::other(format!("it answers {status}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<OperatorsProxies, String> {
        OperatorsProxies::in_environment(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn which_host_is_reached_by_which_proxy() {
        let some = proxies(&[
            ("HTTPS_PROXY", "http://u:p%40@one.example:3128"),
            ("http_proxy", "two.example"),
            (
                "NO_PROXY",
                "a.example, .b.example,*.c.example,10.0.0.0/8,192.0.2.1,d.example:5000,::2,",
            ),
        ]);
        let some = some.unwrap();
        let by = |host: &str, is_plain: bool| {
            let target = Target::parse(host, Some(443)).unwrap();
            some.leading_to(&target, is_plain)
                .map(|upstream| (upstream.host.clone(), upstream.port))
        };
        assert_eq!(by("r.example", false), Some(("one.example".to_owned(), 3128)));
        assert_eq!(by("r.example", true), Some(("two.example".to_owned(), 80)));
        for without in [
            "a.example",
            "x.a.example",
            "x.b.example",
            "x.c.example",
            "10.1.2.3",
            "192.0.2.1:80",
            "[::2]",
            "d.example:5000",
            "localhost:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
        ] {
            assert_eq!(by(without, false), None, "{without}");
        }
        for with in
            ["xa.example", "b.example", "c.example", "192.0.2.2", "d.example:443", "127.1", "[::3]"]
        {
            assert!(by(with, false).is_some(), "{with}");
        }
        let header = &some.https.as_ref().unwrap().header;
        assert_eq!(
            header,
            &format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode("u:p@"))
        );
        let none = proxies(&[("HTTPS_PROXY", "http://one.example"), ("NO_PROXY", "*")]).unwrap();
        assert!(none.leading_to(&Target::parse("r.example:1", None).unwrap(), false).is_none());
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_said_without_its_password() {
        for url in ["https://u:secret@p.example", "socks5://u:secret@p.example", "http://u:secret@"]
        {
            let Err(error) = proxies(&[("HTTPS_PROXY", url)]) else { panic!("{url}") };
            assert!(error.contains("must be http://") && !error.contains("secret"), "{error}");
        }
    }
}
