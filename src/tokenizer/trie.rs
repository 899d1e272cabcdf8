//! A trie over bytes.

#[derive(Default)]
struct Node<T> {
    /// Sorted by byte.
    children: Vec<(u8, u32)>,
    value: Option<T>,
}

/// Maps byte strings to values and walks them byte by byte.
pub(super) struct Trie<T> {
    nodes: Vec<Node<T>>,
}

impl<T: Copy> Trie<T> {
    /// A trie of the given entries; of equal keys the last counts.
    pub(super) fn new<K: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, T)>) -> Self {
        let root = Node {
            children: Vec::new(),
            value: None,
        };
        let mut trie = Self { nodes: vec![root] };
        for (key, value) in entries {
            let mut node = 0;
            for &byte in key.as_ref() {
                node = trie.child_or_new(node, byte);
            }
            trie.nodes[node as usize].value = Some(value);
        }
        trie
    }

    fn child_or_new(&mut self, node: u32, byte: u8) -> u32 {
        let new = self.nodes.len() as u32;
        let children = &mut self.nodes[node as usize].children;
        match children.binary_search_by_key(&byte, |&(b, _)| b) {
            Ok(i) => children[i].1,
            Err(i) => {
                children.insert(i, (byte, new));
                self.nodes.push(Node {
                    children: Vec::new(),
                    value: None,
                });
                new
            }
        }
    }

    /// The nodes on the way along `text`, from the first byte on: how many bytes
    /// lead there, and the value that ends there.
    pub(super) fn walk(&self, text: &[u8]) -> impl Iterator<Item = (usize, Option<T>)> {
        let mut node = 0u32;
        text.iter().enumerate().map_while(move |(i, byte)| {
            let children = &self.nodes[node as usize].children;
            let child = children.binary_search_by_key(byte, |&(b, _)| b).ok()?;
            node = children[child].1;
            Some((i + 1, self.nodes[node as usize].value))
        })
    }

    /// The longest key that `text` begins with: its length and value.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, T)> {
        let ends = self.walk(text).filter_map(|(n, value)| Some((n, value?)));
        ends.last()
    }
}
