//! Values of the sweep's axes, and the base that replaces some of a run's.

use super::decode::{Decoder, Node, Table, is_table, optional};
use super::diagnostics::{Located, suggest};
use super::{KldBase, Numerics, PlacementError, PlacementParts, PlacementRequest, Replacement};
use crate::backend::{self, Device, Placement};

pub(super) fn placement<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<PlacementRequest> {
    if !is_table(node) {
        return match d.string(node)?.as_str() {
            "auto" => Some(PlacementRequest::Auto),
            other => {
                let found = backend::by_name(other).map(Placement::Whole);
                if found.is_none() {
                    let names = backend::devices().map(|device| device.name());
                    let words = ["auto"].into_iter().chain(names);
                    let hint = suggest(other, words.chain(["{ gpu_layers = N }"]));
                    d.error(node, format!("unknown placement '{other}'{hint}"));
                }
                found.map(PlacementRequest::Fixed)
            }
        };
    }
    let keys = [
        "device",
        "gpu_layers",
        "first_layer",
        "layers_per_window",
        "cycle",
    ];
    let table = d.table(node, "a placement", &keys)?;
    let parts = PlacementParts {
        device: optional(d, &table, "device", device),
        gpu_layers: optional(d, &table, "gpu_layers", |d, n| d.count(n, 1)),
        first_layer: optional(d, &table, "first_layer", |d, n| d.count(n, 0)),
        layers_per_window: optional(d, &table, "layers_per_window", |d, n| d.count(n, 1)),
        cycle: optional(d, &table, "cycle", |d, n| d.bool(n)).unwrap_or(false),
    };
    let unread = [
        ("device", parts.device.is_none()),
        ("gpu_layers", parts.gpu_layers.is_none()),
        ("first_layer", parts.first_layer.is_none()),
        ("layers_per_window", parts.layers_per_window.is_none()),
    ];
    if unread
        .iter()
        .any(|(key, none)| *none && table.get(key).is_some())
    {
        return None; // Reported already; do not report it as missing too.
    }
    if table.is_empty() {
        d.error(
            node,
            "an empty placement: write \"auto\", \"cpu\" or { gpu_layers = N }",
        );
        return None;
    }
    match parts.placement() {
        Ok(placement) => Some(placement),
        Err(PlacementError { key, why }) => {
            let at = table.get(key);
            d.error(at.as_ref().unwrap_or(node), format!("'{key}' {why}"));
            None
        }
    }
}

fn device(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<Device> {
    let name = d.string(node)?;
    let found = backend::by_name(&name);
    if found.is_none() {
        let hint = suggest(&name, backend::devices().map(|device| device.name()));
        d.error(node, format!("unknown device '{name}'{hint}"));
    }
    found
}

pub(super) fn numerics(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<Numerics> {
    let name = d.string(node)?;
    let found = Numerics::by_name(&name);
    if found.is_none() {
        let hint = suggest(&name, Numerics::ALL.map(Numerics::name));
        d.error(node, format!("unknown numerics '{name}'{hint}"));
    }
    found
}

/// `[kld] base`: a model's name, a run's key, or a table of axes.
pub(super) fn kld_base<'a>(d: &mut Decoder<'a>, top: &Table<'a>) -> Option<Located<KldBase>> {
    let node = top.get("kld")?;
    let table = d.table(&node, "[kld]", &["base"])?;
    let Some(base) = table.get("base") else {
        d.error(
            &node,
            "[kld] has no 'base': it names the model, or the run, that others are compared with, or \
             what is other in the base (base = { numerics = \"exact\" })",
        );
        return None;
    };
    let value = match is_table(&base) {
        false => KldBase::Named(d.string(&base)?),
        true => KldBase::Same(replacement(d, &base)?),
    };
    let at = d.at(&base);
    Some(Located { value, at })
}

fn replacement<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<Replacement> {
    let table = d.table(node, "'base'", &["model", "placement", "numerics"])?;
    if table.is_empty() {
        d.error(
            node,
            "an empty 'base' is every run itself: say what is other in it (base = { numerics = \
             \"exact\" })",
        );
        return None;
    }
    let replacement = Replacement {
        model: optional(d, &table, "model", |d, n| d.located_string(n)),
        placement: located(d, &table, "placement", placement),
        numerics: located(d, &table, "numerics", numerics),
    };
    let known = replacement.model.is_some()
        || replacement.placement.is_some()
        || replacement.numerics.is_some();
    known.then_some(replacement)
}

/// The value of an optional key, with its place.
fn located<'a, T>(
    d: &mut Decoder<'a>,
    table: &Table<'a>,
    key: &str,
    decode: impl FnOnce(&mut Decoder<'a>, &Node<'a>) -> Option<T>,
) -> Option<Located<T>> {
    let node = table.get(key)?;
    let value = decode(d, &node)?;
    let at = d.at(&node);
    Some(Located { value, at })
}
