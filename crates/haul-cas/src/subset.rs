//! Some of the content that is wanted: a flag for each instead of a set of addresses, since there may be millions. Pure.

use crate::address::Address;
use std::sync::Arc;

/// Some of a list of addresses.
#[derive(Clone, Debug, Default)]
pub struct Subset {
    of: Arc<[Address]>,
    has: Vec<bool>,
    count: usize,
}

impl Subset {
    /// Nothing of `of`, which is in order.
    pub fn none(of: &Arc<[Address]>) -> Subset {
        Subset { of: of.clone(), has: vec![false; of.len()], count: 0 }
    }

    fn place(&self, address: &Address) -> Option<usize> {
        self.of.binary_search(address).ok()
    }

    fn set(&mut self, address: &Address, has: bool) {
        let Some(place) = self.place(address).filter(|place| self.has[*place] != has) else { return };
        self.has[place] = has;
        self.count = if has { self.count + 1 } else { self.count - 1 };
    }

    /// Adds an address; one that isn't in the list stays out.
    pub fn insert(&mut self, address: &Address) {
        self.set(address, true);
    }

    /// Takes an address out.
    pub fn remove(&mut self, address: &Address) {
        self.set(address, false);
    }

    /// Adds all of another part of the same list.
    pub fn extend(&mut self, other: &Subset) {
        for (mine, others) in self.has.iter_mut().zip(&other.has) {
            *mine |= others;
        }
        self.count = self.has.iter().filter(|has| **has).count();
    }

    /// Takes out what isn't among `those`, which are in order.
    pub fn retain(&mut self, those: &[Address]) {
        for (address, has) in self.of.iter().zip(&mut self.has) {
            *has &= those.binary_search(address).is_ok();
        }
        self.count = self.has.iter().filter(|has| **has).count();
    }

    /// True for an address that was added.
    pub fn contains(&self, address: &Address) -> bool {
        self.place(address).is_some_and(|place| self.has[place])
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn those(&self, has: bool) -> impl Iterator<Item = &Address> {
        self.of.iter().zip(&self.has).filter(move |(_, here)| **here == has).map(|(address, _)| address)
    }

    /// Those that were added, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.those(true)
    }

    /// Those of the list that were not added, in order.
    pub fn lacking(&self) -> impl Iterator<Item = &Address> {
        self.those(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Layout;

    fn address(n: u8) -> Address {
        Address::file(Layout::V3, [n; 16])
    }

    #[test]
    fn what_is_added_and_taken_out_is_counted_once() {
        let of: Arc<[Address]> = [1, 3, 5, 7].map(address).into();
        let mut some = Subset::none(&of);
        assert!(some.is_empty() && some.lacking().count() == 4);
        for n in [3, 3, 4, 7] {
            some.insert(&address(n));
        }
        assert_eq!((some.len(), some.contains(&address(3)), some.contains(&address(4))), (2, true, false));
        some.remove(&address(7));
        some.remove(&address(1));
        assert_eq!(some.iter().copied().collect::<Vec<_>>(), [address(3)]);
        let mut other = Subset::none(&of);
        [3, 5].iter().for_each(|n| other.insert(&address(*n)));
        some.extend(&other);
        assert_eq!((some.len(), some.lacking().copied().collect::<Vec<_>>()), (2, vec![address(1), address(7)]));
        some.retain(&[1, 4, 5].map(address));
        assert_eq!((some.len(), some.iter().copied().collect::<Vec<_>>()), (1, vec![address(5)]));
    }
}
