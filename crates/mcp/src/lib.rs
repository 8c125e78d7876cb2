//! Model Context Protocol server of Safepoint.
