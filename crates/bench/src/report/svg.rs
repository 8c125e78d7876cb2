//! Plots: bars of a comparison, one picture per work; growth curves on logarithmic axes.

use super::{Report, WorkResult};
use crate::failure::{Failure, Result, Tried};
use crate::numbers::seconds;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fs;
use std::path::Path;

const SIZE: (u32, u32) = (760, 60);
const BAR: i32 = 26;
const LEFT: i32 = 110;
/// Length of the longest bar.
const LONG: f64 = 420.0;
const OWN: RGBColor = RGBColor(0, 114, 178);
const OTHER: RGBColor = RGBColor(150, 150, 150);
const LIMIT: RGBColor = RGBColor(0, 158, 115);
const LINES: [RGBColor; 5] =
    [OWN, RGBColor(213, 94, 0), LIMIT, RGBColor(204, 121, 167), RGBColor(90, 90, 90)];

/// Writes one picture per work.
pub(crate) fn write_bars(dir: &Path, report: &Report) -> Result<()> {
    fs::create_dir_all(dir).tried(|| format!("making {}", dir.display()))?;
    for work in &report.works {
        let path = dir.join(format!("{}.svg", work.work.name()));
        draw_bars(&path, work)
            .map_err(|error| Failure::new(format!("drawing {}: {error}", path.display())))?;
    }
    Ok(())
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw_bars(path: &Path, work: &WorkResult) -> Drawn {
    let limit = work.limit.iter().map(|limit| ("limit", limit.median, None, LIMIT));
    let tools = work.tools.iter().map(|tool| {
        let colour = if tool.tool == "safepoint" { OWN } else { OTHER };
        (tool.tool.as_str(), tool.figures.median, tool.ratio_to_limit, colour)
    });
    let bars: Vec<_> = limit.chain(tools).collect();
    let longest = bars.iter().map(|bar| bar.1).fold(0.0, f64::max).max(1e-9);
    let height = SIZE.1 + u32::try_from(BAR)? * u32::try_from(bars.len())?;
    let area = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = ("sans-serif", 15).into_font();
    area.draw(&Text::new(work.title.clone(), (14, 14), ("sans-serif", 18).into_font()))?;
    for ((name, median, ratio, colour), row) in bars.into_iter().zip(0..) {
        let top = 44 + row * BAR;
        let end = LEFT + ((median / longest * LONG) as i32).max(1);
        let right = font.clone().into_text_style(&area).pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new(name, (LEFT - 8, top + 2), right))?;
        area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR - 7)], colour.filled()))?;
        let ratio = ratio.map(|ratio| format!("  {ratio:.2} × limit")).unwrap_or_default();
        area.draw(&Text::new(seconds(median) + &ratio, (end + 6, top + 2), font.clone()))?;
    }
    area.present()?;
    Ok(())
}

/// Named curve.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws curves on logarithmic axes.
pub(crate) fn write_curves(path: &Path, title: &str, across: &str, curves: &[Curve<'_>]) -> Result<()> {
    let drawn = draw_curves(path, title, across, curves);
    drawn.map_err(|error| Failure::new(format!("drawing {}: {error}", path.display())))
}

fn draw_curves(path: &Path, title: &str, across: &str, curves: &[Curve<'_>]) -> Drawn {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), v| (low.min(v), high.max(v)));
        low * 0.8..high * 1.25
    };
    let (x, y) = (range(&mut all().map(|p| p.0)), range(&mut all().map(|p| p.1)));
    let area = SVGBackend::new(path, (760, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(across)
        .y_label_formatter(&|value| seconds(*value))
        .x_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for (curve, colour) in curves.iter().zip(LINES.iter().cycle()) {
        let points = curve.points.clone();
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(curve.name)
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}
