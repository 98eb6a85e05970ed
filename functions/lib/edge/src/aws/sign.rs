//! AWS's signature of a request, version 4: what was asked, when and by whom, under a key of that day, region and service.

use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use time::format_description::StaticFormatDescription;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// Who asks, as Lambda puts it into a function's environment.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) key_id: String,
    pub(crate) key: String,
    pub(crate) session: Option<String>,
}

/// What is signed.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Names in lower case, in the order of the alphabet, with `host` and `x-amz-date`.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// Where it is asked.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// The value of the header `authorization`. `at` is the instant as `x-amz-date` has it: `20150830T123600Z`.
pub(crate) fn authorization(asked: &Asked<'_>, scope: Scope<'_>, who: &Credentials, at: &str) -> String {
    let (within, names) = (scope.on(at), names(asked));
    let signature = signature(asked, scope, who, at);
    format!("AWS4-HMAC-SHA256 Credential={}/{within}, SignedHeaders={names}, Signature={signature}", who.key_id)
}

/// The signature alone, for a question whose `query` says who signs it, and how.
pub(crate) fn signature(asked: &Asked<'_>, scope: Scope<'_>, who: &Credentials, at: &str) -> String {
    let mut headers = String::new();
    for (name, value) in asked.headers {
        let _ = writeln!(headers, "{name}:{}", value.trim());
    }
    let body = digest(asked.body);
    let canonical = [asked.method, asked.path, asked.query, &headers, &names(asked), &body].join("\n");
    let text = format!("AWS4-HMAC-SHA256\n{at}\n{}\n{}", scope.on(at), digest(canonical.as_bytes()));
    let first = format!("AWS4{}", who.key).into_bytes();
    hex::encode(keyed(&scope.on(at).split('/').fold(first, |key, part| keyed(&key, part)), &text))
}

fn names(asked: &Asked<'_>) -> String {
    asked.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
}

impl Scope<'_> {
    /// What a signature of the instant `at` is good for.
    pub(crate) fn on(self, at: &str) -> String {
        let day = at.split('T').next().unwrap_or(at);
        format!("{day}/{}/{}/aws4_request", self.region, self.service)
    }
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// An instant as AWS writes it.
pub(crate) fn instant(at: OffsetDateTime) -> String {
    at.to_offset(UtcOffset::UTC).format(&AS_AWS_WRITES).unwrap_or_default()
}

const AS_AWS_WRITES: StaticFormatDescription = format_description!("[year][month][day]T[hour][minute][second]Z");

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS's own manual, with the signature that stands there.
    #[test]
    fn a_request_is_signed_as_the_manual_has_it() {
        let who = Credentials {
            key_id: "AKIDEXAMPLE".into(),
            key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session: None,
        };
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let query = "Action=ListUsers&Version=2010-05-08";
        let asked = Asked { method: "GET", path: "/", query, headers: &headers, body: b"" };
        let scope = Scope { region: "us-east-1", service: "iam" };
        assert_eq!(
            authorization(&asked, scope, &who, "20150830T123600Z"),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn an_instant_is_written_as_aws_writes_it() {
        assert_eq!(instant(time::macros::datetime!(2015-08-30 14:36:00 +2)), "20150830T123600Z");
    }
}
