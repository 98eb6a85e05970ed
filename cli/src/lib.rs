//! callboard-cli
