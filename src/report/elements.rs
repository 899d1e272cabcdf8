//! Elements of the page that several of its parts have.

use maud::{Markup, PreEscaped, html};

use super::plot::{Figure, PlotError};
use crate::render::one_line;

/// A name from a file: it may break after slashes, and its direction stays its own.
pub(super) fn name(text: &str) -> Markup {
    let text = one_line(text);
    html! {
        bdi.key {
            @for part in text.split_inclusive('/') { (part) wbr; }
        }
    }
}

/// A table with its caption, which stays where it is while the table scrolls
/// sideways, also by keyboard; on a narrow page its rows are cards. `id` is unique in
/// the page.
pub(super) fn table(id: &str, caption: Markup, rows: Markup) -> Markup {
    html! {
        p.caption id=(id) { (caption) }
        div.scroll role="region" tabindex="0" aria-labelledby=(id) {
            table aria-labelledby=(id) { (rows) }
        }
    }
}

/// A drawn figure with its caption. `id` is unique in the page; `title` says what
/// it is and `description` what it shows to those who do not see it.
pub(super) fn figure(
    id: &str,
    figure: &Figure,
    title: &str,
    description: &str,
    caption: Markup,
) -> Result<Markup, PlotError> {
    let drawing = figure.draw()?;
    Ok(html! {
        figure {
            svg.plot role="img" viewBox=(drawing.view_box)
                aria-labelledby={ (id) "-title" } aria-describedby={ (id) "-desc" } {
                title id={ (id) "-title" } { (title) }
                desc id={ (id) "-desc" } { (description) }
                (PreEscaped(drawing.svg))
            }
            figcaption { (caption) }
        }
    })
}

pub(super) fn swatch(class: &str) -> Markup {
    html! { span class={ "swatch " (class) } aria-hidden="true" {} " " }
}
