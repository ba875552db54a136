//! Draft trees.

use proptest::prelude::*;
use spec_core::{DraftTree, Node, NodeId, Origin, Token, TreeError};

fn ids(tree: &DraftTree) -> Vec<NodeId> {
    tree.nodes().map(|(id, _)| id).collect()
}

#[test]
fn a_chain_is_a_tree_with_one_branch() {
    let tree = DraftTree::chain(&[4, 4, 6], Origin::Fixed);
    let ids = ids(&tree);
    assert!(tree.is_chain() && !tree.is_empty());
    assert_eq!((tree.len(), tree.height()), (3, 3));
    assert_eq!(*tree.node(ids[1]), Node { token: 4, parent: Some(ids[0]), origin: Origin::Fixed });
    assert_eq!(tree.path(ids[2]).as_slice(), ids);
    assert_eq!(tree.ancestor_mask(), [true, false, false, true, true, false, true, true, true]);
    assert!(DraftTree::new().is_chain() && DraftTree::new().is_empty() && DraftTree::new().height() == 0);
}

#[test]
fn equal_siblings_and_unknown_parents_are_refused_and_change_nothing() {
    let mut tree = DraftTree::chain(&[1, 2, 3], Origin::Shared);
    let ids = ids(&tree);
    assert_eq!(tree.push(None, 1, Origin::Fixed), Err(TreeError::DuplicateSibling { token: 1, existing: ids[0] }));
    assert_eq!(
        tree.push(Some(ids[0]), 2, Origin::Fixed),
        Err(TreeError::DuplicateSibling { token: 2, existing: ids[1] })
    );
    tree.truncate(2);
    let error = tree.push(Some(ids[2]), 5, Origin::Fixed);
    assert_eq!(error, Err(TreeError::UnknownParent { parent: ids[2], nodes: 2 }));
    assert!(error.is_err_and(|error| error.to_string().contains("parent node 2 does not exist in a tree of 2 nodes")));
    assert_eq!(tree, DraftTree::chain(&[1, 2], Origin::Shared));
    // The same token under another parent is another continuation.
    assert!(tree.push(Some(ids[1]), 2, Origin::Fixed).is_ok());
    tree.clear();
    assert_eq!(tree, DraftTree::new());
}

/// Trees by (which earlier node or the root, token).
fn trees() -> impl Strategy<Value = DraftTree> {
    proptest::collection::vec((any::<prop::sample::Index>(), 0 as Token..4), 0..24).prop_map(|steps| {
        let mut tree = DraftTree::new();
        for (place, token) in steps {
            let place = place.index(tree.len() + 1);
            let parent = place.checked_sub(1).and_then(|index| tree.nodes().nth(index)).map(|(id, _)| id);
            // Equal siblings are left out.
            let _ = tree.push(parent, token, Origin::Fixed);
        }
        tree
    })
}

proptest! {
    #[test]
    fn depths_paths_children_and_mask_agree(tree in trees()) {
        let mask = tree.ancestor_mask();
        let mut children = 0;
        for parent in [None].into_iter().chain(ids(&tree).into_iter().map(Some)) {
            for child in tree.children(parent) {
                prop_assert_eq!(tree.node(child).parent, parent);
                prop_assert_eq!(tree.child_with(parent, tree.node(child).token), Some(child));
                children += 1;
            }
        }
        prop_assert_eq!(children, tree.len());
        for id in ids(&tree) {
            let path = tree.path(id);
            prop_assert_eq!(path.len(), tree.depth(id));
            prop_assert!(path.windows(2).all(|pair| tree.node(pair[1]).parent == Some(pair[0])));
            prop_assert_eq!(tree.node(path[0]).parent, None);
            for other in ids(&tree) {
                prop_assert_eq!(mask[id.index() * tree.len() + other.index()], path.contains(&other));
            }
        }
        prop_assert_eq!(tree.height(), ids(&tree).into_iter().map(|id| tree.depth(id)).max().unwrap_or(0));
        prop_assert_eq!(tree.is_chain(), tree.height() == tree.len());
    }

    #[test]
    fn every_prefix_of_a_tree_is_a_tree(tree in trees(), nodes in 0usize..30) {
        let mut prefix = tree.clone();
        prefix.truncate(nodes);
        prop_assert_eq!(prefix.len(), nodes.min(tree.len()));
        for (id, node) in prefix.nodes() {
            prop_assert_eq!(node, tree.node(id));
            prop_assert!(node.parent.is_none_or(|parent| parent.index() < id.index()));
        }
    }
}
