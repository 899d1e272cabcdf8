//! Where the names of points stand, so that none lies on another, on a point or on a
//! line. A figure is drawn once and scaled, so what does not overlap in its own
//! coordinates does not on a telephone.

/// A place in CSS pixels, downwards.
pub(super) type Place = (f64, f64);

/// Where a text stands beside its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// It begins there.
    Start,
    /// It has its middle there.
    Middle,
    /// It ends there.
    End,
}

/// How far a text stands from its point, in CSS pixels, and which end of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beside {
    pub dx: f64,
    pub dy: f64,
    pub anchor: Anchor,
}

/// What is tried, best first.
const SIDES: [Beside; 8] = [
    side(6.0, -10.0, Anchor::Start),
    side(8.0, 0.0, Anchor::Start),
    side(0.0, -14.0, Anchor::Middle),
    side(0.0, 14.0, Anchor::Middle),
    side(6.0, 10.0, Anchor::Start),
    side(-6.0, -10.0, Anchor::End),
    side(-8.0, 0.0, Anchor::End),
    side(-6.0, 10.0, Anchor::End),
];

const fn side(dx: f64, dy: f64, anchor: Anchor) -> Beside {
    Beside { dx, dy, anchor }
}

/// Width of a character and half of a line's height at most, in CSS pixels: fonts are
/// the reader's.
const CHARACTER: f64 = 7.5;
const HALF_LINE: f64 = 7.5;

/// Half of a point's width, with its margin.
const POINT: f64 = 5.0;

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    fn overlaps(&self, o: &Area) -> bool {
        self.left < o.right && o.left < self.right && self.top < o.bottom && o.top < self.bottom
    }

    fn is_within(&self, o: &Area) -> bool {
        o.left <= self.left && self.right <= o.right && o.top <= self.top && self.bottom <= o.bottom
    }

    fn of_text(at: Place, beside: Beside, characters: usize) -> Self {
        let width = CHARACTER * characters as f64;
        let (x, y) = (at.0 + beside.dx, at.1 + beside.dy);
        let left = match beside.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - 0.5 * width,
            Anchor::End => x - width,
        };
        Area {
            left,
            top: y - HALF_LINE,
            right: left + width,
            bottom: y + HALF_LINE,
        }
    }

    fn of_point((x, y): Place) -> Self {
        Area {
            left: x - POINT,
            top: y - POINT,
            right: x + POINT,
            bottom: y + POINT,
        }
    }
}

/// Where each text stands beside its point, within `area`; `None` where there is no
/// room for it. `line` joins points and is not crossed.
pub(super) fn place(texts: &[(Place, &str)], line: &[Place], area: Area) -> Vec<Option<Beside>> {
    let mut taken: Vec<Area> = texts.iter().map(|(at, _)| Area::of_point(*at)).collect();
    taken.extend(line.windows(2).flat_map(|pair| {
        let (a, b) = (pair[0], pair[1]);
        let steps = (a.0 - b.0).hypot(a.1 - b.1).ceil() as usize;
        (0..=steps).map(move |i| {
            let t = i as f64 / steps.max(1) as f64;
            let (x, y) = (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1));
            Area {
                left: x - 0.5,
                top: y - 0.5,
                right: x + 0.5,
                bottom: y + 0.5,
            }
        })
    }));
    let find = |(at, text): &(Place, &str)| {
        let fits = |beside: &&Beside| {
            let own = Area::of_text(*at, **beside, text.chars().count());
            own.is_within(&area) && !taken.iter().any(|other| own.overlaps(other))
        };
        let found = SIDES.iter().find(fits).copied()?;
        taken.push(Area::of_text(*at, found, text.chars().count()));
        Some(found)
    };
    texts.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: Area = Area {
        left: 50.0,
        top: 10.0,
        right: 470.0,
        bottom: 210.0,
    };

    #[test]
    fn a_name_stands_at_the_right_and_gives_way() {
        let at = place(&[((100.0, 100.0), "Q4_0")], &[], AREA);
        assert_eq!(at, [Some(SIDES[0])]);
        // At the right margin it stands at the left; where a line runs, beside it.
        let at = place(&[((465.0, 100.0), "Q4_0")], &[], AREA);
        assert_eq!(at[0].map(|b| b.anchor), Some(Anchor::End));
        let up = [(100.0, 100.0), (160.0, 40.0)];
        let at = place(&[((100.0, 100.0), "Q4_0")], &up, AREA);
        assert_ne!(at, [Some(SIDES[0])]);
        assert!(at[0].is_some());
        // Points on top of each other have room for some names.
        let crowd = [((200.0, 100.0), "a-long-name"); 30];
        let at = place(&crowd, &[], AREA);
        assert!((2..=8).contains(&at.iter().flatten().count()), "{at:?}");
    }

    proptest! {
        #[test]
        fn no_name_overlaps_another_or_leaves_the_figure(
            points in prop::collection::vec((50.0f64..470.0, 10.0f64..210.0, 1usize..15), 0..12),
        ) {
            let names: Vec<String> = points.iter().map(|p| "x".repeat(p.2)).collect();
            let texts: Vec<(Place, &str)> =
                points.iter().zip(&names).map(|(p, n)| ((p.0, p.1), n.as_str())).collect();
            let placed = place(&texts, &[], AREA);
            let areas: Vec<Area> = texts
                .iter()
                .zip(&placed)
                .filter_map(|((at, n), b)| Some(Area::of_text(*at, (*b)?, n.len())))
                .collect();
            for (i, a) in areas.iter().enumerate() {
                prop_assert!(a.is_within(&AREA));
                prop_assert!(areas[..i].iter().all(|b| !a.overlaps(b)));
                prop_assert!(texts.iter().all(|(at, _)| !a.overlaps(&Area::of_point(*at))));
            }
        }
    }
}
