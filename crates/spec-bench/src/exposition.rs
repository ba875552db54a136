//! What `/metrics` says, in Prometheus' text format.

use anyhow::{Context, Result, ensure};

use crate::http::Endpoint;

/// The samples of one look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<(String, f64)>);

impl Samples {
    pub(crate) fn read(endpoint: &Endpoint) -> Result<Self> {
        let answer = endpoint.get("/metrics")?;
        ensure!(answer.status == 200, "/metrics has the status {}", answer.status);
        Self::parse(&answer.text)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|line| {
            // A label's value may have spaces, a name with its labels ends with them.
            let end = line.find('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1));
            let (name, value) = line.split_at(end.with_context(|| format!("`{line}` is no sample"))?);
            let value = value.split_whitespace().next().and_then(|value| value.parse().ok());
            Ok((name.to_owned(), value.with_context(|| format!("`{line}` has no value"))?))
        });
        samples.collect::<Result<_>>().map(Self)
    }

    /// The sum over all labels of one metric.
    ///
    /// # Errors
    /// There is no such metric: a check of it would hold whatever happened.
    pub(crate) fn sum(&self, name: &str) -> Result<f64> {
        let of_name = |known: &str| known.split('{').next() == Some(name);
        let mut values = self.0.iter().filter(|(known, _)| of_name(known)).map(|(_, value)| value).peekable();
        ensure!(values.peek().is_some(), "/metrics has no `{name}`");
        Ok(values.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn samples_are_summed_over_their_labels_and_a_missing_one_is_no_zero() {
        let text = "# HELP a b\n# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"y\"} 4 1700000\nab 5.5e1\n";
        let samples = Samples::parse(text).unwrap();
        assert_eq!((samples.sum("a").unwrap(), samples.sum("ab").unwrap()), (7.0, 55.0));
        assert!(samples.sum("b").unwrap_err().to_string().contains("`b`"));
        assert!(Samples::parse("nothing").is_err());
    }
}
