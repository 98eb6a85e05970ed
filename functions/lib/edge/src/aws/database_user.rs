//! A user of the database who gets in by the function's role, with a password that is a signature and good for 15 minutes.

use super::sign::{Asked, Credentials, Scope, instant, signature};
use std::fmt::Write as _;
use std::time::SystemTime;

/// How long AWS takes such a password for, counted when a connection is opened.
const SECONDS: &str = "900";

/// Whom `arn:aws:rds-db:REGION:ACCOUNT:dbuser:RESOURCE/NAME` is about, which is also what the role may connect as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseUser {
    pub(crate) name: String,
    region: String,
}

impl DatabaseUser {
    /// Reads the ARN; `None` if it is none.
    pub(crate) fn of(arn: &str) -> Option<Self> {
        let ["arn", _, "rds-db", region, _, "dbuser", user] = arn.split(':').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (resource, name) = user.split_once('/')?;
        let is_complete = ![region, resource, name].contains(&"") && !name.contains(['/', '*']);
        is_complete.then(|| Self { name: name.into(), region: region.into() })
    }

    /// A password for connections that are opened now.
    pub(crate) fn password(&self, host: &str, port: u16, who: &Credentials) -> String {
        // AWS refuses a signature of another time. Nothing of ours is decided by this clock.
        #[expect(clippy::disallowed_methods)]
        let at = instant(SystemTime::now().into());
        self.password_at(host, port, who, &at)
    }

    fn password_at(&self, host: &str, port: u16, who: &Credentials, at: &str) -> String {
        let scope = Scope { region: &self.region, service: "rds-db" };
        let by = format!("{}/{}", who.key_id, scope.on(at));
        let mut fields = vec![
            ("Action", "connect"),
            ("DBUser", self.name.as_str()),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", by.as_str()),
            ("X-Amz-Date", at),
            ("X-Amz-Expires", SECONDS),
        ];
        fields.extend(who.session.as_deref().map(|session| ("X-Amz-Security-Token", session)));
        fields.push(("X-Amz-SignedHeaders", "host"));
        let written: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let (query, host) = (written.join("&"), format!("{host}:{port}"));
        let asked = Asked { method: "GET", path: "/", query: &query, headers: &[("host", &host)], body: b"" };
        format!("{host}/?{query}&X-Amz-Signature={}", signature(&asked, scope, who, at))
    }
}

/// As AWS wants it in a query: everything but what needs no escape anywhere.
fn escaped(value: &str) -> String {
    let mut escaped = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABCDEFGH/functions";

    fn signed(session: Option<&str>) -> String {
        let who = Credentials {
            key_id: "AKIDEXAMPLE".into(),
            key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session: session.map(Into::into),
        };
        let user = DatabaseUser::of(ARN).expect("an ARN");
        let host = "callboard.cluster-abc.eu-west-1.rds.amazonaws.com";
        user.password_at(host, 5432, &who, "20150830T123600Z")
    }

    /// The signatures are those that AWS's own botocore 1.x makes for the same user, key and instant.
    #[test]
    fn a_password_is_signed_as_awss_own_library_does() {
        assert_eq!(
            signed(None),
            "callboard.cluster-abc.eu-west-1.rds.amazonaws.com:5432/?Action=connect&DBUser=functions\
             &X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Feu-west-1%2Frds-db%2Faws4_request\
             &X-Amz-Date=20150830T123600Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=f070b32a69f3da9ea736137202d89f535b0edf368c2b3caae1c5164a9087559f"
        );
    }

    #[test]
    fn a_roles_session_is_signed_too() {
        let password = signed(Some("Fwo/GZX+abc=="));
        assert!(password.contains("&X-Amz-Security-Token=Fwo%2FGZX%2Babc%3D%3D&"), "{password}");
        let signature = "X-Amz-Signature=69338999cf3d4614707ff80312062f426f6f5b5b4745b8695c1498fab8cd13db";
        assert!(password.ends_with(signature), "{password}");
    }

    #[test]
    fn an_arn_names_one_user_in_one_region() {
        let user = DatabaseUser { name: "functions".into(), region: "eu-west-1".into() };
        assert_eq!(DatabaseUser::of(ARN), Some(user));
        for bad in [
            "",
            "functions",
            "arn:aws:rds:eu-west-1:123456789012:db:callboard",
            "arn:aws:rds-db::123456789012:dbuser:cluster-ABCDEFGH/functions",
            "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABCDEFGH/",
            "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABCDEFGH/*",
            "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABCDEFGH",
        ] {
            assert_eq!(DatabaseUser::of(bad), None, "{bad}");
        }
    }
}
