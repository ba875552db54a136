//! Draft trees.

use proptest::prelude::*;
use spec_core::{DraftTree, Node, NodeId, NodeKind, Origin, Token, TreeError};

fn ids(tree: &DraftTree) -> Vec<NodeId> {
    tree.nodes().map(|(id, _)| id).collect()
}

#[test]
fn a_chain_is_a_tree_with_one_branch() {
    let tree = DraftTree::chain(&[4, 4, 6], Origin::Fixed);
    let ids = ids(&tree);
    assert!(tree.is_chain() && !tree.is_empty());
    assert_eq!((tree.len(), tree.height()), (3, 3));
    assert_eq!(
        *tree.node(ids[1]),
        Node { token: 4, parent: Some(ids[0]), kind: NodeKind::Given(Origin::Fixed), confidence: None }
    );
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
    tree.truncate(2).expect("nothing was drawn");
    let error = tree.push(Some(ids[2]), 5, Origin::Fixed);
    assert_eq!(error, Err(TreeError::UnknownParent { parent: ids[2], nodes: 2 }));
    assert!(error.is_err_and(|error| error.to_string().contains("parent node 2 does not exist in a tree of 2 nodes")));
    assert_eq!(tree, DraftTree::chain(&[1, 2], Origin::Shared));
    // The same token under another parent is another continuation.
    assert!(tree.push(Some(ids[1]), 2, Origin::Fixed).is_ok());
    tree.clear();
    assert_eq!(tree, DraftTree::new());
}

/// A law over four tokens.
fn with_law(work: impl FnOnce(&spec_core::Law<'_>)) {
    let params = spec_core::SamplingParams { temperature: 1.0, ..spec_core::SamplingParams::default() };
    let pipeline = spec_core::Pipeline::new(params, 4).expect("valid parameters");
    let mut scratch = spec_core::Scratch::default();
    work(&pipeline.law(&[0.0, 1.0, 0.5, 0.2], None, &mut scratch).expect("a proper row"));
}

#[test]
fn a_drawn_node_stays_and_given_ones_behind_it_may_go() {
    use spec_core::{KeyedChoices, Proposal, Siblings};
    with_law(|law| {
        let mut tree = DraftTree::chain(&[1], Origin::Fixed);
        let first = ids(&tree)[0];
        let choices = &mut KeyedChoices::new(1, 0);
        let drawn = Proposal::Sampled(Siblings::Distinct).propose(&mut tree, Some(first), law, 2, 1, choices);
        let drawn = drawn.expect("a proper parent");
        assert!(drawn.iter().all(|&node| matches!(tree.node(node).kind, NodeKind::Sampled(_))));
        let given = tree.push(Some(drawn[1]), 3, Origin::Fixed).expect("a proper parent");
        assert_eq!(tree.truncate(2), Err(TreeError::Drawn { node: drawn[1] }));
        assert_eq!(tree.truncate(0), Err(TreeError::Drawn { node: drawn[0] }));
        assert_eq!(tree.len(), 4, "a refusal changes nothing");
        assert_eq!(tree.truncate(given.index()), Ok(()));
        assert_eq!(tree.len(), 3);
        tree.clear();
        assert_eq!(tree, DraftTree::new());
    });
}

#[test]
fn below_a_parent_children_are_drawn_once_and_none_is_added_after() {
    use spec_core::{KeyedChoices, Proposal, Siblings};
    with_law(|law| {
        let mut tree = DraftTree::new();
        let choices = &mut KeyedChoices::new(1, 0);
        let proposal = Proposal::Sampled(Siblings::Independent);
        proposal.propose(&mut tree, None, law, 1, 0, choices).expect("the root");
        assert_eq!(
            proposal.propose(&mut tree, None, law, 1, 0, choices),
            Err(TreeError::AlreadyDrawn { parent: None })
        );
        let error = tree.push(None, 3, Origin::Fixed).expect_err("it was drawn below");
        assert!(error.to_string().contains("below the committed text"), "{error}");
    });
}

#[test]
fn several_children_are_the_most_probable_or_the_leaders_of_the_race() {
    use spec_core::{KeyedChoices, Noise, Proposal, ScalarScan, SharedNoise};
    with_law(|law| {
        let choices = &mut KeyedChoices::new(1, 0);
        let tokens = |tree: &DraftTree| tree.nodes().map(|(_, node)| node.token).collect::<Vec<_>>();
        let mut tree = DraftTree::new();
        Proposal::Argmax.propose(&mut tree, None, law, 3, 0, choices).expect("the root");
        assert_eq!(tokens(&tree), [1, 2, 3]);
        for position in 0..200 {
            let noise = SharedNoise { noise: Noise::new(5), scan: &ScalarScan };
            let mut tree = DraftTree::new();
            Proposal::Shared(noise).propose(&mut tree, None, law, 3, position, choices).expect("the root");
            let score =
                |token: u32| f64::from([0.0f32, 1.0, 0.5, 0.2][token as usize]) + noise.noise.gumbel(position, token);
            let mut order = [0, 1, 2, 3];
            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            assert_eq!(tokens(&tree), order[..3]);
            assert_eq!(tokens(&tree)[0], law.sample(&noise, position));
        }
    });
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
        prefix.truncate(nodes).expect("nothing was drawn");
        prop_assert_eq!(prefix.len(), nodes.min(tree.len()));
        for (id, node) in prefix.nodes() {
            prop_assert_eq!(node, tree.node(id));
            prop_assert!(node.parent.is_none_or(|parent| parent.index() < id.index()));
        }
    }
}
