//! The preview of a pipeline file.

use super::fields::{Field, Fields, Reader, quoted};
use super::step::{commands, image};
use crate::pipeline::{PREVIEW_TTL_SECONDS, PreviewSpec};
use crate::pipeline_problems::is_health_path;

const KEYS: &[&str] = &["image", "run", "port", "health_path", "ttl", "env", "retain_failed"];

/// The preview: what it runs and its port must be there.
pub(super) fn preview(field: &Field<'_>, reader: &mut Reader) -> PreviewSpec {
    let fields = reader.map(field, KEYS);
    let what = "is not a path; write / and visible ASCII characters, at most 1,024";
    let path = fields.get("health_path").and_then(|field| reader.text_that(&field, is_health_path, what));
    PreviewSpec {
        image: fields.get("image").and_then(|field| image(&field, reader)).unwrap_or_else(|| "host".into()),
        commands: commands(&fields, reader),
        port: port(&fields, reader),
        health_path: path.unwrap_or_else(|| "/".into()),
        ttl_seconds: fields.get("ttl").and_then(|field| reader.duration(&field)).unwrap_or(PREVIEW_TTL_SECONDS),
        env: fields.get("env").map(|field| reader.env(&field)).unwrap_or_default(),
        retain_failed: fields.get("retain_failed").is_some_and(|field| reader.flag(&field)),
    }
}

fn port(fields: &Fields<'_>, reader: &mut Reader) -> u16 {
    let Some(field) = fields.get("port") else {
        reader.missing(fields, "port");
        return 0;
    };
    let Some(text) = reader.text(&field) else { return 0 };
    let port = text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()));
    if port.is_none() {
        reader.refuse(&field, format!("{} is not a port; write 1 to 65535", quoted(&text)));
    }
    port.unwrap_or(0)
}
