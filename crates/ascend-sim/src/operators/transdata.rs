//! Transdata: between plain matrices and tiles of 16 columns (32 of int8).

use super::tensor::{Argument, Desc, Format, Type};
use super::{Operator, Plan, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{SPEC_ATB_TRANSDATA_ND_TO_NZ, SPEC_ATB_TRANSDATA_NZ_TO_ND, spec_atb_transdata_param};

/// Rows of a tile.
const ROWS: usize = 16;

pub(crate) struct Transdata {
    to_nz: bool,
    crops: [usize; 2],
}

impl Transdata {
    pub(crate) fn new(param: spec_atb_transdata_param) -> Outcome<Self> {
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        let known = [SPEC_ATB_TRANSDATA_ND_TO_NZ, SPEC_ATB_TRANSDATA_NZ_TO_ND];
        require(known.contains(&param.type_), || parameter(format!("transdata type {}", param.type_.0)))?;
        let crops = param.out_crops.map(|crop| usize::try_from(crop).unwrap_or(0));
        Ok(Self { to_nz: param.type_ == SPEC_ATB_TRANSDATA_ND_TO_NZ, crops })
    }
}

fn tile(dtype: Type) -> usize {
    if dtype == Type::I8 { 32 } else { 16 }
}

impl Operator for Transdata {
    fn name(&self) -> &'static str {
        "Transdata"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let (from, to) = if self.to_nz { (Format::Nd, Format::Nz) } else { (Format::Nz, Format::Nd) };
        let known = [Type::F16, Type::Bf16, Type::I8].contains(&inputs[0].dtype);
        known && inputs[0].format == from && outputs[0].format == to && inputs[0].dtype == outputs[0].dtype
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (dims, tile) = (&inputs[0].dims, tile(inputs[0].dtype));
        let wrong = |wanted: &str| shape(format!("{dims:?} is not {wanted}"));
        if self.to_nz {
            let (batch, rows, columns) = match dims[..] {
                [rows, columns] => (1, rows, columns),
                [batch, rows, columns] => (batch, rows, columns),
                _ => return Err(wrong("of 2 or 3 dimensions")),
            };
            let dims = [batch, columns.div_ceil(tile), rows.next_multiple_of(ROWS), tile];
            return Ok(vec![Desc { format: Format::Nz, ..inputs[0].with(dims) }]);
        }
        let [batch, tiles, rows, last] = dims[..] else { return Err(wrong("of 4 dimensions")) };
        require(last == tile && rows % ROWS == 0, || wrong("a whole number of tiles"))?;
        require(
            self.crops[0] > 0 && self.crops[0] <= rows && self.crops[1] > 0 && self.crops[1] <= tiles * tile,
            || shape(format!("a result of {:?} of {rows} rows and {} columns", self.crops, tiles * tile)),
        )?;
        Ok(vec![Desc { format: Format::Nd, ..inputs[0].with([batch, self.crops[0], self.crops[1]]) }])
    }

    fn plan(&self, inputs: &[Argument], outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let to_nz = self.to_nz;
        let (plain, tiled) =
            if to_nz { (&inputs[0].desc, &outputs[0].desc) } else { (&outputs[0].desc, &inputs[0].desc) };
        let rank = plain.dims.len();
        let (rows, columns) = (plain.dims[rank - 2], plain.dims[rank - 1]);
        let (batch, tiles, padded, tile) = (tiled.dims[0], tiled.dims[1], tiled.dims[2], tiled.dims[3]);
        Ok(Plan::new(move |bound| {
            let (from, to) = (bound.inputs[0].floats(), &bound.outputs[0]);
            let mut result = vec![0.0; to.desc.elements()];
            for b in 0..batch {
                for row in 0..rows {
                    for column in 0..columns {
                        let in_tiles = ((b * tiles + column / tile) * padded + row) * tile + column % tile;
                        let in_rows = (b * rows + row) * columns + column;
                        let (source, target) = if to_nz { (in_rows, in_tiles) } else { (in_tiles, in_rows) };
                        result[target] = from[source];
                    }
                }
            }
            to.write_floats(0, &result);
            Ok(())
        }))
    }
}
