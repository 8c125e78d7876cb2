//! Values to write into settings files: JSON with a fixed order of keys.

/// JSON value with ordered keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    Number(u64),
    True,
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Layout of printed values.
#[derive(Debug, Clone)]
pub(super) struct Style {
    /// One level of indentation.
    pub(super) unit: String,
    /// Line end.
    pub(super) newline: &'static str,
}

impl Node {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn map<const N: usize>(entries: [(&str, Node); N]) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Prints the value over several lines. `indent` is the indentation of the line that it begins on.
    pub(super) fn pretty(&self, style: &Style, indent: &str) -> String {
        let inner = format!("{indent}{}", style.unit);
        let block = |open: char, close: char, items: Vec<String>| {
            let lines = items.join(&format!(",{}{inner}", style.newline));
            format!("{open}{nl}{inner}{lines}{nl}{indent}{close}", nl = style.newline)
        };
        match self {
            Self::List(items) if items.iter().any(|item| matches!(item, Self::List(_) | Self::Map(_))) => {
                block('[', ']', items.iter().map(|item| item.pretty(style, &inner)).collect())
            }
            Self::Map(entries) if !entries.is_empty() => block(
                '{',
                '}',
                entries
                    .iter()
                    .map(|(key, value)| format!("{}: {}", quoted(key), value.pretty(style, &inner)))
                    .collect(),
            ),
            other => other.inline(),
        }
    }

    /// Prints the value on one line.
    pub(super) fn inline(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Number(number) => number.to_string(),
            Self::True => "true".to_owned(),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::inline).collect::<Vec<_>>().join(", "))
            }
            Self::Map(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| format!("{}: {}", quoted(key), value.inline()));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Converts to the type that parsed files have.
    pub(super) fn to_value(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => (*number).into(),
            Self::True => true.into(),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Map(entries) => {
                entries.iter().map(|(key, value)| (key.clone(), value.to_value())).collect()
            }
        }
    }
}

/// JSON string literal.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
