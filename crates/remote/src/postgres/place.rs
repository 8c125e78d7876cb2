//! Place of a PostgreSQL server: from the address, a service file, the variables of libpq and `.pgpass`.
//!
//! The address comes first, then the service, then the variables. A password never comes from the address.

use crate::environment::{RemoteEnvironment, Secret};
use crate::{RecordsUrl, RemoteError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PORT: u16 = 5432;

/// Use of TLS. Certificates are always verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

/// Everything needed to connect.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) transport: Transport,
    pub(crate) roots: Option<PathBuf>,
}

/// Settings by the names of libpq.
type Settings = BTreeMap<String, String>;

const VARIABLES: [(&str, &str); 8] = [
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("dbname", "PGDATABASE"),
    ("password", "PGPASSWORD"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("service", "PGSERVICE"),
];

fn wrong(why: impl Into<String>) -> RemoteError {
    RemoteError::Address { what: "records", why: why.into() }
}

impl Place {
    pub(crate) fn of(url: &RecordsUrl, environment: &RemoteEnvironment) -> Result<Self, RemoteError> {
        let mut settings = of_url(url)?;
        let service =
            settings.get("service").cloned().or_else(|| environment.get("PGSERVICE").map(str::to_owned));
        if let Some(service) = service {
            for (name, value) in of_service(&service, environment)? {
                settings.entry(name).or_insert(value);
            }
        }
        for (name, variable) in VARIABLES {
            if let Some(value) = environment.get(variable) {
                settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        let get = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
        let hosts = hosts(get("host"), get("port").as_deref())?;
        let is_near = hosts.iter().all(|(host, _)| is_near(host));
        let transport = match get("sslmode").as_deref() {
            Some("disable") => Transport::Plain,
            None if is_near => Transport::Plain,
            // `prefer` and `allow` would fall back to plain text.
            None | Some("prefer" | "allow" | "require" | "verify-ca" | "verify-full") => Transport::Tls,
            Some(other) => return Err(wrong(format!("the sslmode `{other}` is unknown"))),
        };
        let (user, database) = (get("user"), get("dbname"));
        let password = match get("password") {
            Some(password) => Some(Secret(password)),
            None => of_pgpass(&hosts, user.as_deref(), database.as_deref(), environment)?,
        };
        Ok(Self { hosts, user, database, password, transport, roots: get("sslrootcert").map(PathBuf::from) })
    }
}

fn is_near(host: &str) -> bool {
    host.starts_with('/') || ["localhost", "127.0.0.1", "::1"].contains(&host)
}

fn hosts(hosts: Option<String>, ports: Option<&str>) -> Result<Vec<(String, u16)>, RemoteError> {
    let hosts = hosts.unwrap_or_else(|| "/var/run/postgresql".to_owned());
    let ports: Vec<u16> = match ports {
        Some(text) => text
            .split(',')
            .map(|port| port.parse().map_err(|_| wrong("a port is not a number")))
            .collect::<Result<_, _>>()?,
        None => vec![PORT],
    };
    let hosts: Vec<&str> = hosts.split(',').collect();
    if ports.len() != 1 && ports.len() != hosts.len() {
        return Err(wrong("it has other numbers of hosts and ports"));
    }
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    Ok(hosts.iter().enumerate().map(|(at, host)| ((*host).to_owned(), port(at))).collect())
}

fn of_url(url: &RecordsUrl) -> Result<Settings, RemoteError> {
    const KNOWN: [&str; 7] = ["host", "port", "user", "dbname", "sslmode", "sslrootcert", "service"];
    let url = url.url();
    let mut settings = Settings::new();
    let mut set = |name: &str, value: String| {
        if !value.is_empty() {
            settings.insert(name.to_owned(), value);
        }
    };
    let decode = |text: &str| {
        url::form_urlencoded::parse(format!("x={}", text.replace('+', "%2B")).as_bytes())
            .next()
            .map(|(_, value)| value.into_owned())
            .unwrap_or_default()
    };
    set("host", decode(url.host_str().unwrap_or_default().trim_matches(['[', ']'])));
    set("port", url.port().map(|port| port.to_string()).unwrap_or_default());
    set("user", decode(url.username()));
    set("dbname", decode(url.path().trim_start_matches('/')));
    for (name, value) in url.query_pairs() {
        if !KNOWN.contains(&&*name) {
            return Err(wrong(format!("the parameter `{name}` is unknown")));
        }
        set(&name, value.into_owned());
    }
    Ok(settings)
}

fn read(path: &Path) -> Result<Option<String>, RemoteError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RemoteError::Credentials { path: path.to_owned(), why: error.kind().to_string() }),
    }
}

fn of_service(service: &str, environment: &RemoteEnvironment) -> Result<Settings, RemoteError> {
    let Some(path) = environment.file("PGSERVICEFILE", ".pg_service.conf") else {
        return Err(wrong("the home folder with the service file is unknown"));
    };
    let text = read(&path)?.unwrap_or_default();
    let wanted = format!("[{service}]");
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != wanted);
    if lines.next().is_none() {
        return Err(RemoteError::Credentials { path, why: format!("it has no service `{service}`") });
    }
    let own = lines.take_while(|line| !line.starts_with('['));
    let pairs = own.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

/// Returns the first matching password of `.pgpass`.
fn of_pgpass(
    hosts: &[(String, u16)],
    user: Option<&str>,
    database: Option<&str>,
    environment: &RemoteEnvironment,
) -> Result<Option<Secret>, RemoteError> {
    let Some(path) = environment.file("PGPASSFILE", ".pgpass") else { return Ok(None) };
    let Some(text) = read(&path)? else { return Ok(None) };
    let mode = fs::metadata(&path).map(|metadata| metadata.mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        let why = "other users can read it; run: chmod 600 on it".to_owned();
        return Err(RemoteError::Credentials { path, why });
    }
    let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [host, port, base, role, password] = &fields(line)[..] else { continue };
        let found = hosts.iter().any(|(name, number)| {
            // A Unix socket has the name localhost there.
            let name = if name.starts_with('/') { "localhost" } else { name };
            fits(host, name) && fits(port, &number.to_string())
        });
        let user = user.unwrap_or_default();
        if found && fits(base, database.unwrap_or(user)) && fits(role, user) {
            return Ok(Some(Secret(password.clone())));
        }
    }
    Ok(None)
}

/// Splits a line of `.pgpass`; a backslash escapes a colon.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let last = fields.len() - 1;
        match letter {
            '\\' => fields[last].extend(letters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            _ => fields[last].push(letter),
        }
    }
    fields
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn place(url: &str, variables: &[(&str, &str)], home: Option<&Path>) -> Result<Place, RemoteError> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Place::of(&url.parse()?, &RemoteEnvironment::new(variables, home.map(Path::to_owned)))
    }

    #[test]
    fn the_address_wins_over_the_variables() {
        let place = place(
            "postgres://me@db.example/shop",
            &[("PGUSER", "you"), ("PGPORT", "6432"), ("PGPASSWORD", "x")],
            None,
        )
        .unwrap();
        assert_eq!(place.hosts, [("db.example".to_owned(), 6432)]);
        assert_eq!((place.user.as_deref(), place.database.as_deref()), (Some("me"), Some("shop")));
        assert_eq!(place.transport, Transport::Tls, "plain text only where it is asked for, or near");
        assert_eq!(place.password.unwrap().0, "x");
    }

    #[test]
    fn sockets_and_several_hosts_are_understood() {
        let socket = place("postgres:///shop?host=/run/pg&port=6000", &[], None).unwrap();
        assert_eq!((socket.hosts, socket.transport), (vec![("/run/pg".to_owned(), 6000)], Transport::Plain));
        let two = place("postgres:///shop?host=a,b&port=1,2", &[], None).unwrap();
        assert_eq!(two.hosts, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        for bad in
            ["postgres:///x?host=a,b&port=1,2,3", "postgres://h/x?sslmode=maybe", "postgres://h/x?unknown=1"]
        {
            assert!(place(bad, &[], None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_service_and_a_password_file_are_read() {
        let home = tempfile::tempdir().unwrap();
        let (service, pass) = (home.path().join(".pg_service.conf"), home.path().join(".pgpass"));
        fs::write(&service, "[other]\nhost=no\n[prod]\nhost=db.example\nuser=me\ndbname=shop\n").unwrap();
        fs::write(&pass, "# comment\nother:*:*:*:no\ndb.example:5432:shop:me:hun\\:ter2\n").unwrap();
        let url = "postgres:///?service=prod";
        fs::set_permissions(&pass, fs::Permissions::from_mode(0o644)).unwrap();
        let error = place(url, &[], Some(home.path())).unwrap_err();
        assert!(matches!(&error, RemoteError::Credentials { .. }) && !format!("{error:?}").contains("hun"));
        fs::set_permissions(&pass, fs::Permissions::from_mode(0o600)).unwrap();
        let place = place(url, &[], Some(home.path())).unwrap();
        assert_eq!(place.password.as_ref().unwrap().0, "hun:ter2");
        assert!(!format!("{place:?}").contains("hun:ter2"));
    }
}
