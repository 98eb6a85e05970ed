//! Names of images: which registry they are of, and who may be asked for them with which password.

use bollard::auth::DockerCredentials;
use protocol::worker::Secret;
use std::collections::BTreeMap;

/// Where names without a registry are looked for.
const USUAL: &str = "docker.io";

/// Whether `image` could be the name of one: no option, no blank, nothing that ends the path of a request.
#[must_use]
pub(in crate::isolation) fn is_reference(image: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@[]".contains(&byte);
    (1..=512).contains(&image.len())
        && image.bytes().all(is_fine)
        && image.as_bytes()[0].is_ascii_alphanumeric()
        && !image.contains("..")
}

/// The registry of `image`: its first part if that looks like a host, as Docker has it.
#[must_use]
pub(in crate::isolation) fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        Some(_) | None => USUAL,
    }
}

/// Splits a name into what comes before its tag and the tag, or digest, to ask for.
#[must_use]
pub(super) fn parts(image: &str) -> (&str, &str) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, digest);
    }
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        Some(_) | None => (image, "latest"),
    }
}

/// What the registry of `image` is to be shown, if the pipeline named a secret for it: `user:password`, or a token.
#[must_use]
pub(super) fn credentials(image: &str, secrets: &BTreeMap<String, Secret>) -> Option<DockerCredentials> {
    let registry = registry(image);
    let Secret(secret) = secrets.get(registry)?;
    let address = if registry == USUAL { "https://index.docker.io/v1/" } else { registry };
    // A bare token goes with any user name at the usual registries.
    let (user, password) = secret.trim().split_once(':').unwrap_or(("x-access-token", secret.trim()));
    Some(DockerCredentials {
        username: Some(user.to_owned()),
        password: Some(password.to_owned()),
        serveraddress: Some(address.to_owned()),
        ..DockerCredentials::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_a_first_part_that_looks_like_a_host() {
        for (image, expected) in [
            ("rust", "docker.io"),
            ("library/rust:1.95", "docker.io"),
            ("ghcr.io/team/app:1", "ghcr.io"),
            ("localhost/app", "localhost"),
            ("host:5000/app@sha256:aa", "host:5000"),
        ] {
            assert_eq!(registry(image), expected, "{image}");
        }
    }

    #[test]
    fn a_tag_is_what_follows_the_last_colon_of_the_last_part() {
        assert_eq!(parts("rust"), ("rust", "latest"));
        assert_eq!(parts("host:5000/app"), ("host:5000/app", "latest"));
        assert_eq!(parts("host:5000/app:1"), ("host:5000/app", "1"));
        assert_eq!(parts("app@sha256:aa"), ("app", "sha256:aa"));
    }

    #[test]
    fn a_secret_is_shown_to_its_own_registry_alone() {
        let secrets =
            [("ghcr.io".to_owned(), Secret("me:pass:word".into())), ("h:1".to_owned(), Secret("token".into()))].into();
        let shown = credentials("ghcr.io/a/b", &secrets).unwrap();
        assert_eq!((shown.username.as_deref(), shown.password.as_deref()), (Some("me"), Some("pass:word")));
        assert_eq!(credentials("h:1/b", &secrets).unwrap().password.as_deref(), Some("token"));
        assert_eq!(credentials("rust", &secrets), None);
        assert_eq!(credentials("ghcr.io.evil.example/a", &secrets), None);
    }

    #[test]
    fn what_could_change_a_request_is_no_image() {
        assert!(is_reference("host:5000/team/app_1.x:v1@sha256:aa") && is_reference("rust"));
        for image in ["", "-x", "a b", "a?b=c", "a#b", "../containers", "a\n", "a%2f"] {
            assert!(!is_reference(image), "{image}");
        }
    }
}
