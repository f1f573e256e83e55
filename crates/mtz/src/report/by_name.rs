//! Values by name, in the order they were given: an object in JSON. A sorted map would lose the order of the tasks.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Values by name, in the order they were given. Every name occurs once: of several values the last one stays.
#[derive(Clone, Debug, PartialEq)]
pub struct ByName<T>(Vec<(String, T)>);

impl<T> ByName<T> {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// The values in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps only so many.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for ByName<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(pairs: I) -> Self {
        let mut places = BTreeMap::new();
        let mut all: Vec<(String, T)> = Vec::new();
        for (name, value) in pairs {
            let place = *places.entry(name.clone()).or_insert(all.len());
            match all.get_mut(place) {
                Some((_, known)) => *known = value,
                None => all.push((name, value)),
            }
        }
        Self(all)
    }
}

impl<T: Serialize> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

struct Pairs<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
    type Value = ByName<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object with a value for each name")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ByName<T>, M::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_the_last_value_counts() {
        let read: ByName<u8> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("b", &3), ("a", &2)]);
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"b":3,"a":2}"#);
        assert_eq!((read.get("a"), read.get("c"), read.len(), read.is_empty()), (Some(&2), None, 2, false));
    }
}
