//! A device of streams on a clock that only waiting moves, with a cache that knows which work wrote and read what.
//!
//! Passes take time by a cost model, each stream on its own. Two uses of a slot, one of them a write, that neither a stream's order nor an
//! event nor the host's waiting puts one behind the other, are a race: on real hardware it would be lost now and then.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spec_core::Token;
use spec_runtime::kv::{Move, PagedKv};
use spec_runtime::{
    Batch, CancelToken, Clock, Event, Model, ModelConfig, Pass, Rows, RuntimeError, SeqId, Stream, Want, wait_on_host,
};
use spec_testing::{HashModel, HashSpec};

/// Nanoseconds of a plain pass of the target: costs are in units of it.
const PASS: f64 = 50e6;
/// What moving tokens within a cache costs.
const MOVES: f64 = 0.01;

/// By stream, how much of its work is over.
type Order = Vec<u64>;

/// A piece of work: a stream's, and its number there.
#[derive(Clone, Copy, Debug)]
struct Point {
    lane: usize,
    tick: u64,
}

impl Point {
    fn is_before(self, order: &Order) -> bool {
        order.get(self.lane).is_some_and(|&tick| tick >= self.tick)
    }
}

fn join(order: &mut Order, other: &Order) {
    order.resize(order.len().max(other.len()), 0);
    order.iter_mut().zip(other).for_each(|(tick, other)| *tick = (*tick).max(*other));
}

#[derive(Default)]
struct State {
    now: u64,
    lanes: Vec<Lane>,
    /// What the host knows to be over.
    host: Order,
    races: Vec<String>,
}

#[derive(Default)]
struct Lane {
    free_at: u64,
    order: Order,
    is_deaf: bool,
}

/// The device; it is the clock too.
#[derive(Default)]
pub(super) struct Device(Mutex<State>);

impl Clock for Device {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().now)
    }
}

/// Work that was queued.
struct Queued {
    point: Point,
    order: Order,
    end: u64,
}

impl Device {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Time since the start, in plain passes of the target.
    pub(super) fn time(&self) -> f64 {
        self.0.lock().now as f64 / PASS
    }

    /// Uses of the cache that nothing orders.
    pub(super) fn races(&self) -> Vec<String> {
        self.0.lock().races.clone()
    }

    pub(super) fn stream(self: &Arc<Self>) -> DeviceStream {
        let mut state = self.0.lock();
        state.lanes.push(Lane::default());
        DeviceStream { device: Arc::clone(self), lane: state.lanes.len() - 1, is_serial: false }
    }

    fn queue(&self, lane: usize, cost: f64) -> Queued {
        let state = &mut *self.0.lock();
        let known = state.host.clone();
        let own = &mut state.lanes[lane];
        join(&mut own.order, &known);
        own.order.resize(own.order.len().max(lane + 1), 0);
        own.order[lane] += 1;
        own.free_at = own.free_at.max(state.now) + (cost * PASS) as u64;
        Queued { point: Point { lane, tick: own.order[lane] }, order: own.order.clone(), end: own.free_at }
    }

    /// The host waits until `end`.
    fn wait_until(&self, end: u64, order: &Order) {
        let state = &mut *self.0.lock();
        state.now = state.now.max(end);
        join(&mut state.host, order);
    }

    fn race(&self, what: String) {
        self.0.lock().races.push(what);
    }
}

pub(super) struct DeviceStream {
    device: Arc<Device>,
    lane: usize,
    is_serial: bool,
}

impl DeviceStream {
    /// Events of which say that they are over: nobody works meanwhile.
    pub(super) fn serial(mut self) -> Self {
        self.is_serial = true;
        self
    }

    /// Whose waits are lost.
    pub(super) fn deaf(self) -> Self {
        self.device.0.lock().lanes[self.lane].is_deaf = true;
        self
    }
}

struct Mark {
    device: Arc<Device>,
    at: u64,
    order: Order,
    is_serial: bool,
}

impl Event for Mark {
    fn is_done(&self) -> Result<bool, RuntimeError> {
        if self.device.0.lock().now >= self.at {
            self.device.wait_until(0, &self.order);
            return Ok(true);
        }
        Ok(self.is_serial)
    }
}

impl Stream for DeviceStream {
    fn record(&self) -> Result<Box<dyn Event>, RuntimeError> {
        let state = self.device.0.lock();
        let Lane { free_at: at, order, .. } = &state.lanes[self.lane];
        let (device, is_serial) = (Arc::clone(&self.device), self.is_serial);
        Ok(Box::new(Mark { device, at: *at, order: order.clone(), is_serial }))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        let any: &dyn Any = event;
        let Some(mark) = any.downcast_ref::<Mark>() else { return wait_on_host(event) };
        let lane = &mut self.device.0.lock().lanes[self.lane];
        if !lane.is_deaf {
            lane.free_at = lane.free_at.max(mark.at);
            join(&mut lane.order, &mark.order);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), RuntimeError> {
        let (end, order) = {
            let lane = &self.device.0.lock().lanes[self.lane];
            (lane.free_at, lane.order.clone())
        };
        self.device.wait_until(end, &order);
        Ok(())
    }
}

/// What happens at a pass of a model.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Submit,
    Wait,
    NotANumber,
    Cancel(CancelToken),
}

/// A [`HashModel`]'s text on the device.
pub(super) struct DeviceModel {
    device: Arc<Device>,
    hash: Arc<HashModel>,
    config: ModelConfig,
    /// Of a pass of one row, and of each further one.
    cost: f64,
    row_cost: f64,
    cache: Arc<Mutex<Cache>>,
}

struct Cache {
    kv: PagedKv,
    slots: Vec<Slot>,
    lanes: HashMap<SeqId, usize>,
    open: usize,
    passes: usize,
    fault: Option<(usize, Fault)>,
}

#[derive(Clone, Default)]
struct Slot {
    token: Option<Token>,
    writer: Option<Point>,
    readers: Vec<Point>,
}

impl Slot {
    fn write(&mut self, token: Option<Token>, queued: &Queued, device: &Device, what: &str) {
        let users = self.readers.iter().chain(&self.writer);
        if let Some(user) = users.into_iter().find(|user| !user.is_before(&queued.order)) {
            device.race(format!("{what} on {:?} writes what {user:?} uses", queued.point));
        }
        *self = Self { token, writer: Some(queued.point), readers: Vec::new() };
    }

    fn read(&mut self, queued: &Queued, device: &Device, what: &str) -> Option<Token> {
        if let Some(writer) = self.writer.filter(|writer| !writer.is_before(&queued.order)) {
            device.race(format!("{what} on {:?} reads what {writer:?} writes", queued.point));
        }
        self.readers.push(queued.point);
        self.token
    }
}

impl DeviceModel {
    /// A pass costs `cost`, and `row_cost` for each row but one.
    pub(super) fn new(device: &Arc<Device>, spec: HashSpec, cost: f64, row_cost: f64) -> Arc<Self> {
        let hash = HashModel::new(spec.clone());
        Arc::new(Self {
            device: Arc::clone(device),
            config: hash.config().clone(),
            hash,
            cost,
            row_cost,
            cache: Arc::new(Mutex::new(Cache {
                kv: PagedKv::new(spec.blocks, spec.block_tokens, spec.context),
                slots: vec![Slot::default(); spec.blocks * spec.block_tokens],
                lanes: HashMap::new(),
                open: 0,
                passes: 0,
                fault: None,
            })),
        })
    }

    /// Another model, whose sequences take their blocks from the same pool.
    pub(super) fn beside(&self, spec: HashSpec, cost: f64) -> Arc<Self> {
        let other = Self::new(&self.device, spec, cost, 0.0);
        Arc::new(Self {
            device: Arc::clone(&self.device),
            hash: Arc::clone(&other.hash),
            config: other.config.clone(),
            cost,
            row_cost: 0.0,
            cache: Arc::clone(&self.cache),
        })
    }

    /// Blocks in use and sequences that are open.
    pub(super) fn held(&self) -> (usize, usize) {
        let cache = self.cache.lock();
        (cache.kv.total_blocks() - cache.kv.free_blocks(), cache.open)
    }

    /// Lets the pass with this number, counted from now and from 0, fail so.
    pub(super) fn fail_at(&self, pass: usize, fault: Fault) {
        let mut cache = self.cache.lock();
        (cache.passes, cache.fault) = (0, Some((pass, fault)));
    }

    pub(super) fn passes(&self) -> usize {
        self.cache.lock().passes
    }
}

impl DeviceModel {
    fn follow(&self, lane: Option<&usize>, slots: &mut [Slot], moves: &[Move]) {
        let Some(&lane) = lane.filter(|_| !moves.is_empty()) else {
            moves.iter().for_each(|&Move { from, to }| slots[to].token = slots[from].token);
            return;
        };
        // Queued like everything else: the host goes on.
        let queued = self.device.queue(lane, MOVES);
        for &Move { from, to } in moves {
            let token = slots[from].read(&queued, &self.device, "a move");
            slots[to].write(token, &queued, &self.device, "a move");
        }
    }
}

impl Model for DeviceModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn open(&self) -> Result<SeqId, RuntimeError> {
        let mut cache = self.cache.lock();
        cache.open += 1;
        Ok(cache.kv.open())
    }

    fn close(&self, seq: SeqId) {
        let mut cache = self.cache.lock();
        if cache.kv.committed(seq).is_ok() {
            cache.open -= 1;
        }
        cache.kv.close(seq);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.cache.lock().kv.committed(seq)
    }

    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        let Cache { kv, slots, lanes, .. } = &mut *self.cache.lock();
        let moves = kv.reserve(seq, rows)?;
        self.follow(lanes.get(&seq), slots, &moves);
        Ok(())
    }

    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        let Cache { kv, slots, lanes, .. } = &mut *self.cache.lock();
        let moves = kv.settle(seq, path)?;
        self.follow(lanes.get(&seq), slots, &moves);
        Ok(())
    }

    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        self.cache.lock().kv.truncate(seq, length).map(|()| true)
    }

    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        let Cache { kv, slots, lanes, passes, fault, .. } = &mut *self.cache.lock();
        let fault = fault.as_ref().filter(|(at, _)| at == passes).map(|(_, fault)| fault.clone());
        *passes += 1;
        let failure =
            |when: &str| RuntimeError::Device { device: "test".into(), reason: format!("it fails at {when}") };
        match &fault {
            Some(Fault::Submit) => return Err(failure("submit")),
            Some(Fault::Cancel(token)) => token.cancel(),
            _ => {}
        }
        let any: &dyn Any = stream;
        let lane = any.downcast_ref::<DeviceStream>().map(|stream| stream.lane);
        let places = kv.append(&batch.rows)?;
        // On the host's stream the host computes.
        let cost = self.cost + self.row_cost * (batch.rows.len() - 1) as f64;
        let queued = match lane {
            Some(lane) => self.device.queue(lane, cost),
            None => {
                let end = self.device.0.lock().now + (cost * PASS) as u64;
                self.device.wait_until(end, &Order::new());
                Queued { point: Point { lane: usize::MAX, tick: 0 }, order: Order::new(), end }
            }
        };
        let mut logits = Vec::with_capacity(batch.rows.len());
        for (row, place) in batch.rows.iter().zip(&places) {
            if let Some(lane) = lane {
                lanes.insert(row.seq, lane);
                slots[place.slot].write(Some(row.token), &queued, &self.device, "a pass");
            } else {
                slots[place.slot].token = Some(row.token);
            }
        }
        for (row, place) in batch.rows.iter().zip(&places) {
            let blocks = kv.blocks(row.seq)?;
            let size = kv.block_tokens();
            let committed = (0..kv.committed(row.seq)?).map(|i| blocks[i / size] as usize * size + i % size);
            let own = kv.path(row.seq, place.row)?;
            let own = own.iter().map(|&number| kv.row_slot(row.seq, number)).collect::<Result<Vec<_>, _>>()?;
            let mut visible = Vec::with_capacity(row.position + 1);
            for slot in committed.chain(own) {
                let token = match lane {
                    Some(_) => slots[slot].read(&queued, &self.device, "a pass"),
                    None => slots[slot].token,
                };
                visible.push(token.expect("a visible slot was written"));
            }
            assert_eq!(visible.len(), row.position + 1, "a row sees one token per position up to its own");
            let row = (row.want != Want::Nothing).then(|| self.hash.logits_of(&visible));
            logits.push(row.map(|row| match fault {
                Some(Fault::NotANumber) => vec![f32::NAN; row.len()],
                _ => row,
            }));
        }
        let failure = matches!(fault, Some(Fault::Wait)).then(|| failure("wait"));
        Ok(Box::new(Running { device: Arc::clone(&self.device), queued, logits, failure }))
    }
}

struct Running {
    device: Arc<Device>,
    queued: Queued,
    logits: Vec<Option<Vec<f32>>>,
    failure: Option<RuntimeError>,
}

impl Pass for Running {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        self.device.wait_until(self.queued.end, &self.queued.order);
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(Box::new(Done(self.logits))),
        }
    }
}

struct Done(Vec<Option<Vec<f32>>>);

impl Rows for Done {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.0.get(row).and_then(Option::as_deref).ok_or(RuntimeError::NotWanted { row })
    }
}
