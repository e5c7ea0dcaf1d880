//! State of the browser of sizes: a tree that grows while it is shown, the person's position in it, and the action of each
//! key. Pure: entries and keys go in, [`Action`]s come out; `view` draws it.

use haul_core::{Entry, Key, Mtime};
use std::collections::HashMap;

/// A place in the tree.
pub type Id = usize;

/// The path itself.
pub const ROOT: Id = 0;

/// A file or directory.
#[derive(Debug)]
pub struct Node {
    /// The last part of its key, without a `/`.
    pub name: Vec<u8>,
    /// The directory that holds it; its own for the root.
    pub parent: Id,
    /// Its contents; `None` for a file.
    pub children: Option<Vec<Id>>,
    /// Bytes, of all files below for a directory.
    pub size: u64,
    /// Files, all below for a directory.
    pub count: u64,
    /// The newest time below.
    pub mtime: Option<Mtime>,
    /// Why it can't be listed.
    pub error: Option<String>,
    /// Something below can't be listed, so that size and count are the least there is.
    pub at_least: bool,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Largest first.
    Size,
    /// By the bytes of names.
    Name,
    /// Most files first.
    Count,
    /// Newest first.
    Time,
}

/// A person's key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "keys")]
pub enum KeyPress {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Leave,
    Escape,
    Char(char),
}

/// An action outside of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// End.
    Quit,
    /// Delete this, which was confirmed.
    Delete(Id),
}

/// An overlay over the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing.
    None,
    /// The keys.
    Help,
    /// A question about deleting this: only `y` is a yes.
    Delete(Id),
    /// A line until the next key.
    Say(String),
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    /// The browsed path, as typed.
    pub title: String,
    nodes: Vec<Node>,
    dirs: HashMap<Vec<u8>, Id>,
    /// The directory that is shown.
    pub here: Id,
    /// The selected line, from 0.
    pub selected: usize,
    /// The order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// The listing goes on.
    pub scanning: bool,
    /// The overlay over the list.
    pub over: Overlay,
    /// Lines that a page has, as drawn last.
    pub page: usize,
    /// Why directories can't be deleted here, if so.
    pub keeps_dirs: Option<String>,
    shown: Vec<Id>,
    stale: bool,
}

impl Model {
    /// An empty path.
    pub fn new(title: impl Into<String>) -> Model {
        let root = Node {
            name: Vec::new(),
            parent: ROOT,
            children: Some(Vec::new()),
            size: 0,
            count: 0,
            mtime: None,
            error: None,
            at_least: false,
        };
        Model {
            title: title.into(),
            nodes: vec![root],
            dirs: HashMap::from([(Vec::new(), ROOT)]),
            here: ROOT,
            selected: 0,
            sort: Sort::Size,
            reverse: false,
            scanning: true,
            over: Overlay::None,
            page: 1,
            keeps_dirs: None,
            shown: Vec::new(),
            stale: true,
        }
    }

    /// A node.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    /// Something that was listed.
    pub fn add(&mut self, entry: &Entry) {
        self.stale = true;
        if entry.is_dir() {
            self.dir(entry.key.as_bytes());
            return;
        }
        let parent = self.dir(entry.key.parent().as_bytes());
        let name = entry.key.leaf().stored().to_vec();
        let (size, mtime) = (entry.size, entry.mtime);
        self.hang(Node { name, parent, children: None, size, count: 1, mtime, error: None, at_least: false });
        self.up(parent, |node| {
            node.size = node.size.saturating_add(size);
            node.count += 1;
            node.mtime = node.mtime.max(mtime);
        });
    }

    /// A directory that can't be listed, or the path itself.
    pub fn fail(&mut self, key: Option<&Key>, why: String) {
        self.stale = true;
        let key = key.map(Key::as_bytes).unwrap_or_default();
        let dir = if key.is_empty() || key.ends_with(b"/") { key } else { haul_core::key::parent(key) };
        let id = self.dir(dir);
        self.nodes[id].error.get_or_insert(why);
        self.up(id, |node| node.at_least = true);
    }

    /// The directory of a key that is empty or ends in `/`; it and those above it are made where they are new.
    fn dir(&mut self, key: &[u8]) -> Id {
        if let Some(id) = self.dirs.get(key) {
            return *id;
        }
        let bare = key.strip_suffix(b"/").unwrap_or(key);
        let at = bare.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let parent = self.dir(&key[..at]);
        let id = self.hang(Node {
            name: bare[at..].to_vec(),
            parent,
            children: Some(Vec::new()),
            size: 0,
            count: 0,
            mtime: None,
            error: None,
            at_least: false,
        });
        self.dirs.insert(key.to_vec(), id);
        id
    }

    fn hang(&mut self, node: Node) -> Id {
        let (id, parent) = (self.nodes.len(), node.parent);
        self.nodes.push(node);
        self.nodes[parent].children.get_or_insert_default().push(id);
        id
    }

    /// Changes a directory and all above it.
    fn up(&mut self, from: Id, change: impl Fn(&mut Node)) {
        let mut id = from;
        loop {
            change(&mut self.nodes[id]);
            if id == ROOT {
                return;
            }
            id = self.nodes[id].parent;
        }
    }

    /// The key below the path; directories' end in `/`.
    pub fn key(&self, id: Id) -> Key {
        if id == ROOT {
            return Key::new("");
        }
        let node = self.node(id);
        let mut key = self.key(node.parent).as_bytes().to_vec();
        key.extend_from_slice(&node.name);
        if node.children.is_some() {
            key.push(b'/');
            return Key::new(key);
        }
        Key::of_stored(key)
    }

    /// The lines of the shown directory, in order.
    pub fn shown(&mut self) -> &[Id] {
        if self.stale {
            self.stale = false;
            let kept = self.shown.get(self.selected).copied();
            let mut all = self.nodes[self.here].children.clone().unwrap_or_default();
            let name = |id: &Id| &self.nodes[*id].name;
            let of = |id: &Id| {
                let node = &self.nodes[*id];
                match self.sort {
                    Sort::Size => i128::from(node.size),
                    Sort::Count => i128::from(node.count),
                    Sort::Time => node.mtime.map_or(i128::MIN, |time| time.0),
                    Sort::Name => 0,
                }
            };
            all.sort_by(|a, b| of(b).cmp(&of(a)).then_with(|| name(a).cmp(name(b))));
            if self.reverse {
                all.reverse();
            }
            // The selection stays on what was chosen; the first line stays the first until one moves.
            if let Some(at) =
                kept.filter(|_| self.selected > 0).and_then(|id| all.iter().position(|other| *other == id))
            {
                self.selected = at;
            }
            self.selected = self.selected.min(all.len().saturating_sub(1));
            self.shown = all;
        }
        &self.shown
    }

    fn selection(&mut self) -> Option<Id> {
        let at = self.selected;
        self.shown().get(at).copied()
    }

    fn go(&mut self, to: Id, select: Option<Id>) {
        self.here = to;
        self.selected = 0;
        self.shown.clear();
        self.stale = true;
        if let Some(at) = select.and_then(|id| self.shown().iter().position(|other| *other == id)) {
            self.selected = at;
        }
    }

    /// The action of a key.
    pub fn press(&mut self, press: KeyPress) -> Action {
        match std::mem::replace(&mut self.over, Overlay::None) {
            Overlay::Delete(id) if press == KeyPress::Char('y') => return Action::Delete(id),
            Overlay::Delete(_) => {
                self.over = Overlay::Say("Nothing deleted.".into());
                return Action::None;
            }
            Overlay::Help => return Action::None,
            Overlay::Say(_) | Overlay::None => {}
        }
        let (count, page) = (self.shown().len(), self.page.max(1));
        let last = count.saturating_sub(1);
        match press {
            KeyPress::Up | KeyPress::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyPress::Down | KeyPress::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyPress::PageUp => self.selected = self.selected.saturating_sub(page),
            KeyPress::PageDown => self.selected = (self.selected + page).min(last),
            KeyPress::Home => self.selected = 0,
            KeyPress::End => self.selected = last,
            KeyPress::Enter | KeyPress::Char('l') => {
                if let Some(id) = self.selection().filter(|id| self.nodes[*id].children.is_some()) {
                    self.go(id, None);
                }
            }
            KeyPress::Leave | KeyPress::Char('h') => self.go(self.nodes[self.here].parent, Some(self.here)),
            KeyPress::Char('s') => self.order(Sort::Size),
            KeyPress::Char('n') => self.order(Sort::Name),
            KeyPress::Char('c') => self.order(Sort::Count),
            KeyPress::Char('t') => self.order(Sort::Time),
            KeyPress::Char('y') => {
                let id = self.selection().unwrap_or(self.here);
                self.over = Overlay::Say(self.path(id));
            }
            KeyPress::Char('d') => self.over = self.ask(),
            KeyPress::Char('?') => self.over = Overlay::Help,
            KeyPress::Char('q') => return Action::Quit,
            KeyPress::Escape | KeyPress::Char(_) => {}
        }
        Action::None
    }

    fn order(&mut self, sort: Sort) {
        self.reverse = self.sort == sort && !self.reverse;
        self.sort = sort;
        self.stale = true;
    }

    /// The whole path of something, as one would type it.
    pub fn path(&self, id: Id) -> String {
        let slash = if self.title.ends_with([':', '/']) || id == ROOT { "" } else { "/" };
        format!("{}{slash}{}", self.title, self.key(id))
    }

    fn ask(&mut self) -> Overlay {
        let Some(id) = self.selection() else { return Overlay::Say("Nothing is selected.".into()) };
        let node = &self.nodes[id];
        if node.children.is_none() {
            return Overlay::Delete(id);
        }
        if self.scanning {
            return Overlay::Say("A directory can be deleted once the scan is complete.".into());
        }
        if node.at_least {
            return Overlay::Say("This directory couldn't be listed as a whole: nothing in it is deleted.".into());
        }
        match &self.keeps_dirs {
            Some(why) => Overlay::Say(why.clone()),
            None => Overlay::Delete(id),
        }
    }

    /// It was deleted.
    pub fn gone(&mut self, id: Id) {
        let (parent, size, count) = (self.nodes[id].parent, self.nodes[id].size, self.nodes[id].count);
        if let Some(children) = &mut self.nodes[parent].children {
            children.retain(|child| *child != id);
        }
        self.up(parent, |node| {
            node.size = node.size.saturating_sub(size);
            node.count = node.count.saturating_sub(count);
        });
        self.stale = true;
        self.over = Overlay::Say(format!("Deleted {}", self.path(id)));
    }

    /// Something of it may have been deleted, and not all.
    pub fn failed(&mut self, id: Id, why: &str) {
        self.stale = true;
        if self.nodes[id].children.is_some() {
            self.nodes[id].error = Some(why.into());
            self.up(id, |node| node.at_least = true);
        }
        self.over = Overlay::Say(format!("Not deleted: {why}"));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A path with a directory that can't be listed.
    pub fn model() -> Model {
        let mut model = Model::new("r:b");
        for (key, size, time) in
            [("big/x", 3_000_000, 3), ("big/sub/y", 1, 9), ("many/1", 1, 1), ("many/2", 1, 1), ("z", 70, 5)]
        {
            model.add(&Entry { mtime: Some(Mtime(time * 1_000_000_000)), ..Entry::file(Key::new(key), size) });
        }
        model.add(&Entry::dir(Key::new("empty")));
        model.fail(Some(&Key::new("closed/")), "permission denied".into());
        model.scanning = false;
        model
    }

    fn names(model: &mut Model) -> Vec<String> {
        let ids = model.shown().to_vec();
        ids.iter().map(|id| String::from_utf8_lossy(&model.node(*id).name).into_owned()).collect()
    }

    #[test]
    fn sizes_and_counts_add_up_and_what_is_not_known_is_said() {
        let model = model();
        let root = model.node(ROOT);
        assert_eq!(
            (root.size, root.count, root.at_least, root.mtime),
            (3_000_073, 5, true, Some(Mtime(9_000_000_000)))
        );
        let of = |key: &[u8]| model.node(model.dirs[key]);
        assert_eq!((of(b"big/").size, of(b"big/").count, of(b"big/").at_least), (3_000_001, 2, false));
        assert_eq!(of(b"closed/").error.as_deref(), Some("permission denied"));
    }

    #[test]
    fn each_order_and_its_reverse() {
        let mut model = model();
        assert_eq!(names(&mut model), ["big", "z", "many", "closed", "empty"]);
        for (key, want) in [
            ('s', ["empty", "closed", "many", "z", "big"]),
            ('n', ["big", "closed", "empty", "many", "z"]),
            ('n', ["z", "many", "empty", "closed", "big"]),
            ('c', ["big", "many", "z", "closed", "empty"]),
            ('t', ["big", "z", "many", "closed", "empty"]),
        ] {
            assert_eq!(model.press(KeyPress::Char(key)), Action::None);
            assert_eq!(names(&mut model), want, "{key}");
        }
    }

    #[test]
    fn the_cursor_stays_on_its_entry_when_directories_are_entered_and_left() {
        let mut model = model();
        model.press(KeyPress::Enter);
        assert_eq!((names(&mut model), model.path(model.here)), (vec!["x".into(), "sub".into()], "r:b/big/".into()));
        model.press(KeyPress::Down);
        model.press(KeyPress::Enter);
        assert_eq!(names(&mut model), ["y"]);
        // A file is no directory.
        model.press(KeyPress::Enter);
        assert_eq!(model.path(model.here), "r:b/big/sub/");
        model.press(KeyPress::Leave);
        assert_eq!(model.selected, 1);
        // The scan goes on: the selection stays on its line's entry.
        model.add(&Entry::file(Key::new("big/new"), 5_000_000));
        assert_eq!((names(&mut model), model.selected), (vec!["new".into(), "x".into(), "sub".into()], 2));
        model.press(KeyPress::Leave);
        model.press(KeyPress::Leave);
        assert_eq!(model.here, ROOT);
        model.press(KeyPress::End);
        assert_eq!(model.selected, 4);
        model.press(KeyPress::Down);
        model.press(KeyPress::PageUp);
        model.press(KeyPress::Home);
        model.press(KeyPress::Up);
        assert_eq!(model.selected, 0);
        assert_eq!(model.press(KeyPress::Char('q')), Action::Quit);
    }

    #[test]
    fn only_y_deletes() {
        let mut model = model();
        for press in [
            KeyPress::Enter,
            KeyPress::Escape,
            KeyPress::Char('n'),
            KeyPress::Char('Y'),
            KeyPress::Char('d'),
            KeyPress::Char('q'),
            KeyPress::Down,
        ] {
            model.press(KeyPress::Char('d'));
            assert!(matches!(model.over, Overlay::Delete(_)));
            assert_eq!(model.press(press), Action::None, "{press:?}");
            assert_eq!(model.over, Overlay::Say("Nothing deleted.".into()));
        }
        model.press(KeyPress::Char('d'));
        let Action::Delete(id) = model.press(KeyPress::Char('y')) else { panic!() };
        assert_eq!(model.key(id), Key::new("big/"));
        model.gone(id);
        assert_eq!(names(&mut model), ["z", "many", "closed", "empty"]);
        assert_eq!((model.node(ROOT).size, model.node(ROOT).count), (72, 3));
        // Without a question `y` is another key.
        assert_eq!(model.press(KeyPress::Char('y')), Action::None);
        assert_eq!(model.over, Overlay::Say("r:b/z".into()));
    }

    #[test]
    fn what_is_not_known_as_a_whole_is_not_deleted() {
        let mut model = model();
        let say = |model: &mut Model, at: usize| {
            model.selected = at;
            model.press(KeyPress::Char('d'));
            model.over.clone()
        };
        let refused = Overlay::Say("This directory couldn't be listed as a whole: nothing in it is deleted.".into());
        assert_eq!(say(&mut model, 3), refused);
        model.scanning = true;
        assert_eq!(say(&mut model, 0), Overlay::Say("A directory can be deleted once the scan is complete.".into()));
        assert!(matches!(say(&mut model, 1), Overlay::Delete(_)));
        model.press(KeyPress::Escape);
        model.scanning = false;
        model.keeps_dirs = Some("with a filter".into());
        assert_eq!(say(&mut model, 0), Overlay::Say("with a filter".into()));
    }
}
