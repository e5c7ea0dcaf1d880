//! Draws the browser of sizes.

use super::model::{Id, Model, Overlay, ROOT, Sort};
use crate::{error::one_line, show::go_time};
use haul_core::{
    text::cut,
    units::{count_text, size_text},
};
use jiff::tz::TimeZone;
use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

/// Columns of the bar of shares.
const BAR: usize = 10;

/// Help for the keys.
const HELP: [&str; 13] = [
    "up, k / down, j     move",
    "page up, page down  move by a page",
    "home / end          first, last",
    "right, enter, l     enter the directory",
    "left, backspace, h  leave it",
    "s n c t             sort by size, name, count, time; again: the other way",
    "d                   delete what is selected (asks first)",
    "y                   show the whole path",
    "?                   this help",
    "q, Ctrl-C           quit",
    "",
    "! couldn't be listed    > at least: something below couldn't be listed",
    "Any key closes this help.",
];

/// Draws all of it.
pub fn draw(model: &mut Model, colours: bool, zone: &TimeZone, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.height < 3 || area.width < 10 {
        return;
    }
    let row = |y: u16| Rect { x: area.x, y: area.y + y, width: area.width, height: 1 };
    let (width, height) = (usize::from(area.width), usize::from(area.height) - 2);
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    let title = format!("haul ncdu  {}", one_line(&model.path(model.here)));
    frame.render_widget(filled(&title, width, bar), row(0));
    model.page = height;
    if model.over == Overlay::Help {
        for (y, line) in HELP.iter().take(height).enumerate() {
            frame.render_widget(Line::raw(*line), row(y as u16 + 1));
        }
    } else {
        list(model, colours, zone, width, height).into_iter().enumerate().for_each(|(y, line)| {
            frame.render_widget(line, row(y as u16 + 1));
        });
    }
    let asks = matches!(model.over, Overlay::Delete(_));
    let style = if asks && colours { bar.fg(Color::Red) } else { bar };
    frame.render_widget(filled(&last_line(model, width), width, style), row(area.height - 1));
}

fn filled(text: &str, width: usize, style: Style) -> Line<'static> {
    let text: String = cut(text.chars(), width).collect();
    let rest = width.saturating_sub(haul_core::text::columns(&text));
    Line::styled(format!("{text}{}", " ".repeat(rest)), style)
}

/// The lines of the shown directory around the selected one.
fn list(model: &mut Model, colours: bool, zone: &TimeZone, width: usize, height: usize) -> Vec<Line<'static>> {
    let ids = model.shown().to_vec();
    if ids.is_empty() {
        let node = model.node(model.here);
        let why = node.error.as_deref().map(|why| format!("Couldn't be listed: {}", one_line(why)));
        let what = why.unwrap_or_else(|| if model.scanning { "Scanning …".into() } else { "Empty.".into() });
        return vec![Line::raw(cut(what.chars(), width).collect::<String>())];
    }
    let first = (model.selected + 1).saturating_sub(height);
    let most = ids.iter().map(|id| share(model, *id)).max().unwrap_or(0).max(1);
    let lines = ids.iter().enumerate().skip(first).take(height);
    lines.map(|(n, id)| line(model, *id, most, n == model.selected, colours, zone, width)).collect()
}

/// The size that the bar shows.
fn share(model: &Model, id: Id) -> u64 {
    let node = model.node(id);
    if model.sort == Sort::Count { node.count } else { node.size }
}

fn line(
    model: &Model,
    id: Id,
    most: u64,
    selected: bool,
    colours: bool,
    zone: &TimeZone,
    width: usize,
) -> Line<'static> {
    let node = model.node(id);
    let sign = match (&node.error, node.at_least) {
        (Some(_), _) => '!',
        (None, true) => '>',
        (None, false) => ' ',
    };
    let full = (u128::from(share(model, id)) * BAR as u128).div_ceil(u128::from(most)) as usize;
    let bar = format!("[{}{}]", "#".repeat(full), " ".repeat(BAR - full));
    let middle = match model.sort {
        Sort::Count if node.children.is_some() => format!("{:>9} ", count_text(node.count)),
        Sort::Count => " ".repeat(10),
        Sort::Time => {
            let time = node.mtime.map(|time| go_time::format(time, go_time::SECONDS, zone)).unwrap_or_default();
            format!("{time:>19} ")
        }
        Sort::Size | Sort::Name => String::new(),
    };
    let slash = if node.children.is_some() { "/" } else { "" };
    let name = format!("{}{slash}", one_line(&String::from_utf8_lossy(&node.name)));
    let why = node.error.as_deref().map(|why| format!("  ({})", one_line(why))).unwrap_or_default();
    let front = format!("{sign}{:>11} {bar} {middle}", size_text(node.size));
    let text: String = cut(format!("{front}{name}{why}").chars(), width).collect();
    let rest = width.saturating_sub(haul_core::text::columns(&text));
    let text = format!("{text}{}", " ".repeat(rest));
    let plain = Style::new();
    if selected {
        return Line::styled(text, plain.add_modifier(Modifier::REVERSED));
    }
    if !colours {
        return Line::raw(text);
    }
    let at = text.char_indices().nth(front.chars().count()).map_or(text.len(), |(at, _)| at);
    let (front, name) = text.split_at(at);
    let colour = match (sign, node.children.is_some()) {
        ('!', _) => Color::Red,
        ('>', _) => Color::Yellow,
        (_, true) => Color::Blue,
        (_, false) => Color::Reset,
    };
    Line::from(vec![Span::raw(front.to_string()), Span::styled(name.to_string(), plain.fg(colour))])
}

/// A question, an answer, or the totals.
fn last_line(model: &Model, width: usize) -> String {
    match &model.over {
        Overlay::Delete(id) => {
            let node = model.node(*id);
            let what = match node.children {
                Some(_) => format!(" with all that is in it ({}, {})", files(node.count), size_text(node.size)),
                None => format!(" ({})", size_text(node.size)),
            };
            // The end of the question must not be cut off; the path up to here is in the first line.
            let (begin, end) = ("Delete ", format!("{what}? [y/N]"));
            let room = width.saturating_sub(begin.len() + end.len());
            format!("{begin}{}{end}", shortened(&one_line(&model.key(*id).leaf().to_string()), room))
        }
        Overlay::Say(text) => one_line(text),
        Overlay::None | Overlay::Help => {
            let (root, here) = (model.node(ROOT), model.node(model.here));
            let least = if here.at_least { "at least " } else { "" };
            let sort = match model.sort {
                Sort::Size => "size",
                Sort::Name => "name",
                Sort::Count => "count",
                Sort::Time => "time",
            };
            let scan = if model.scanning { format!("scanning, {} so far  ", files(root.count)) } else { String::new() };
            format!(
                "{scan}Total: {least}{} in {}  by {sort}{}  ? help",
                size_text(here.size),
                files(here.count),
                if model.reverse { ", reversed" } else { "" }
            )
        }
    }
}

/// A text that takes no more columns, with its end, which tells files of one series apart.
fn shortened(text: &str, width: usize) -> String {
    use haul_core::text::columns;
    let letters: Vec<char> = text.chars().collect();
    let tail = |from: usize| letters[from..].iter().collect::<String>();
    let fits = (0..=letters.len()).find(|from| columns(&tail(*from)) + usize::from(*from > 0) <= width);
    match fits {
        Some(0) => text.into(),
        Some(from) => format!("…{}", tail(from)),
        None => String::new(),
    }
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".into() } else { format!("{} files", count_text(count)) }
}

#[cfg(test)]
mod tests {
    use super::{super::model::KeyPress, *};
    use ratatui::{Terminal, backend::TestBackend};

    fn drawn(model: &mut Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(model, true, &TimeZone::UTC, frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content.chunks(usize::from(width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_string()).collect()
    }

    #[test]
    fn a_path_is_drawn_with_what_is_not_known() {
        let mut model = super::super::model::tests::model();
        assert_eq!(
            drawn(&mut model, 64, 8),
            [
                "haul ncdu  r:b",
                "   2.861 MiB [##########] big/",
                "        70 B [#         ] z",
                "         2 B [#         ] many/",
                "!        0 B [          ] closed/  (permission denied)",
                "         0 B [          ] empty/",
                "",
                "Total: at least 2.861 MiB in 5 files  by size  ? help",
            ]
        );
        model.press(KeyPress::Char('t'));
        let lines = drawn(&mut model, 64, 8);
        assert_eq!(lines[1], "   2.861 MiB [##########] 1970-01-01 00:00:09 big/");
        model.press(KeyPress::Char('d'));
        let prompt = "Delete big/ with all that is in it (2 files, 2.861 MiB)? [y/N]";
        assert_eq!(drawn(&mut model, 80, 8)[7], prompt);
        assert_eq!(drawn(&mut model, 61, 8)[7], prompt.replace("big/", "…g/"));
        model.press(KeyPress::Escape);
        model.press(KeyPress::Char('?'));
        assert_eq!(drawn(&mut model, 64, 8)[1], HELP[0]);
    }

    #[test]
    fn the_selected_line_is_always_seen_and_a_small_terminal_is_no_trouble() {
        let mut model = Model::new("/x");
        for n in 0..100 {
            model.add(&haul_core::Entry::file(haul_core::Key::new(format!("{n:03}")), 1));
        }
        assert!(drawn(&mut model, 40, 6)[5].starts_with("scanning, 100 files so far  Total: 100 B"));
        model.press(KeyPress::End);
        assert!(drawn(&mut model, 40, 6)[4].ends_with(" 099"));
        model.press(KeyPress::PageUp);
        assert!(drawn(&mut model, 40, 6).iter().any(|line| line.ends_with(" 095")));
        for (width, height) in [(1, 1), (10, 3), (9, 9), (300, 2)] {
            drawn(&mut model, width, height);
        }
        let mut empty = Model::new("/x");
        assert_eq!(drawn(&mut empty, 40, 6)[1], "Scanning …");
        empty.scanning = false;
        assert_eq!(drawn(&mut empty, 40, 6)[1], "Empty.");
    }
}
