//! The target's laws along a path of the draft tree, formed when first asked for.

use alloc::vec::Vec;

use crate::{DraftTree, Law, NodeId, Pipeline, SamplingError, Scratch, SmallPath, Token, TokenMask};

/// What a rule sees of the target.
pub trait TargetLaws {
    /// The law of the token after `node`; `None`: after the committed text.
    ///
    /// # Errors
    /// When that row has no law.
    fn law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError>;

    /// The same law, for a rule that will ask for probabilities.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    fn summarized_law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError> {
        self.law(node)
    }

    /// The most probable token of that law, the lowest id among equals. A device that has looked at the row may know it
    /// without the row.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    fn argmax(&mut self, node: Option<NodeId>) -> Result<Token, SamplingError> {
        Ok(self.law(node)?.argmax())
    }

    /// The row of that law as the model gave it: before penalties, bias, mask, temperature and filters.
    ///
    /// # Errors
    /// When there is no such row.
    fn unprocessed(&self, node: Option<NodeId>) -> Result<&[f32], SamplingError>;

    /// Absolute position of the token that [`law`](Self::law) of the same node predicts.
    fn position(&self, node: Option<NodeId>) -> usize;
}

/// The rows of one target pass: logits in f32, index = token id.
pub trait LogitRows {
    /// Row 0 follows the committed text, row `1 + node.index()` follows that node. A row that does not exist is empty, which
    /// verification reports as too short.
    fn row(&self, index: usize) -> &[f32];
}

impl LogitRows for Vec<Vec<f32>> {
    fn row(&self, index: usize) -> &[f32] {
        self.get(index).map_or(&[], Vec::as_slice)
    }
}

/// Rows stored one after another.
#[derive(Clone, Copy, Debug)]
pub struct FlatRows<'a> {
    /// `rows x width` logits.
    pub logits: &'a [f32],
    /// Logits per row.
    pub width: usize,
}

impl LogitRows for FlatRows<'_> {
    fn row(&self, index: usize) -> &[f32] {
        let start = index.saturating_mul(self.width);
        self.logits.get(start..start.saturating_add(self.width)).unwrap_or(&[])
    }
}

/// Laws of which a device has found the most probable tokens, with the rows of the others.
///
/// Only for pipelines that change nothing about which token is the most probable: no penalties, bias or mask.
pub struct KnownLaws<'a> {
    /// By row, as [`LogitRows`]; `None` where the row itself has to say.
    pub known: &'a [Option<Token>],
    /// The laws of the rows that are there.
    pub laws: PathLaws<'a>,
}

impl TargetLaws for KnownLaws<'_> {
    fn law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError> {
        self.laws.law(node)
    }

    fn argmax(&mut self, node: Option<NodeId>) -> Result<Token, SamplingError> {
        let row = node.map_or(0, |node| node.index() + 1);
        match self.known.get(row).copied().flatten() {
            Some(token) => Ok(token),
            None => self.laws.argmax(node),
        }
    }

    fn summarized_law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError> {
        self.laws.summarized_law(node)
    }

    fn unprocessed(&self, node: Option<NodeId>) -> Result<&[f32], SamplingError> {
        self.laws.unprocessed(node)
    }

    fn position(&self, node: Option<NodeId>) -> usize {
        self.laws.position(node)
    }
}

/// The constraint's mask at each node, where there is a constraint.
pub trait PathMasks {
    /// Tokens allowed after `node` (`None`: after the committed text); `None` allows all.
    fn mask(&self, node: Option<NodeId>) -> Option<&dyn TokenMask>;
}

/// [`TargetLaws`] from rows of logits and the sequence's pipeline.
///
/// The pipeline's history is advanced along the path asked for, so that each row is penalised as plain decoding would have
/// penalised it, and is taken back to the committed text when this is dropped.
pub struct PathLaws<'a> {
    tree: &'a DraftTree,
    rows: &'a dyn LogitRows,
    pipeline: &'a mut Pipeline,
    masks: Option<&'a dyn PathMasks>,
    base_position: usize,
    base_len: usize,
    path: SmallPath,
    scratch: Scratch,
}

impl<'a> PathLaws<'a> {
    /// `pipeline` holds the committed text as history; `base_position` is the absolute position of the token that row 0
    /// predicts, which is the number of committed tokens.
    pub fn new(
        tree: &'a DraftTree,
        rows: &'a dyn LogitRows,
        pipeline: &'a mut Pipeline,
        base_position: usize,
        masks: Option<&'a dyn PathMasks>,
    ) -> Self {
        let base_len = pipeline.len();
        let scratch = core::mem::take(&mut pipeline.spare);
        Self { tree, rows, pipeline, masks, base_position, base_len, path: SmallPath::new(), scratch }
    }

    fn row(&self, node: Option<NodeId>) -> &'a [f32] {
        self.rows.row(node.map_or(0, |node| node.index() + 1))
    }

    /// Brings the history to `node`, from wherever it stands.
    fn walk_to(&mut self, node: Option<NodeId>) {
        let path = node.map_or_else(SmallPath::new, |node| self.tree.path(node));
        let shared = self.path.iter().zip(&path).take_while(|(a, b)| a == b).count();
        self.pipeline.truncate(self.base_len + shared);
        for &node in &path[shared..] {
            self.pipeline.push(self.tree.node(node).token);
        }
        self.path = path;
    }
}

impl TargetLaws for PathLaws<'_> {
    fn law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError> {
        self.walk_to(node);
        let mask = self.masks.and_then(|masks| masks.mask(node));
        self.pipeline.law(self.row(node), mask, &mut self.scratch)
    }

    fn summarized_law(&mut self, node: Option<NodeId>) -> Result<Law<'_>, SamplingError> {
        self.walk_to(node);
        let mask = self.masks.and_then(|masks| masks.mask(node));
        self.pipeline.summarized_law(self.row(node), mask, &mut self.scratch)
    }

    fn unprocessed(&self, node: Option<NodeId>) -> Result<&[f32], SamplingError> {
        let (row, vocab) = (self.row(node), self.pipeline.vocab());
        row.get(..vocab).ok_or(SamplingError::RowTooShort { found: row.len(), vocab })
    }

    fn position(&self, node: Option<NodeId>) -> usize {
        self.base_position + node.map_or(0, |node| self.tree.depth(node))
    }
}

impl Drop for PathLaws<'_> {
    fn drop(&mut self) {
        self.pipeline.truncate(self.base_len);
        self.pipeline.spare = core::mem::take(&mut self.scratch);
    }
}
