// Reports events to Safepoint, which takes a checkpoint before each change. It denies a call only with
// `fail_closed = true` in the configuration of Safepoint.
import { spawn } from "node:child_process"

const PROGRAM = "safepoint"
const TIMEOUT_MS = 30000
const OUTPUT_MAX = 1 << 20
const EVENTS = new Set(["session.created", "session.idle", "session.error", "session.compacted", "session.deleted", "todo.updated"])

// Returns the answer of Safepoint, or {} if there is none.
function ask(message) {
  return new Promise((resolve) => {
    try {
      const child = spawn(PROGRAM, ["hook", "opencode", message.hook], { cwd: message.directory, stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS)
      let text = ""
      const done = (answer) => {
        clearTimeout(timer)
        resolve(answer)
      }
      child.on("error", () => done({}))
      child.stdin.on("error", () => {})
      child.stdout.on("data", (piece) => {
        if (text.length < OUTPUT_MAX) text += piece
      })
      child.on("close", () => {
        try {
          const answer = JSON.parse(text)
          done(answer !== null && typeof answer === "object" ? answer : {})
        } catch {
          done({})
        }
      })
      child.stdin.end(JSON.stringify(message))
    } catch {
      resolve({})
    }
  })
}

// Adds a note to the prompt as one more part of its message.
function addNote(output, note) {
  const part = output?.parts?.find((part) => part.type === "text")
  if (!part || typeof note !== "string" || note === "") return
  const id = "prt_" + Date.now().toString(16) + Math.random().toString(36).slice(2)
  output.parts.push({ id, sessionID: part.sessionID, messageID: part.messageID, type: "text", text: note, synthetic: true })
}

export const Safepoint = async ({ client, directory, worktree }) => {
  // Sessions of subagents with the session that started them, and with their kind; and all others.
  const parents = new Map()
  const kinds = new Map()
  const sessions = new Set()
  const learn = (info) => {
    if (typeof info?.id !== "string") return
    if (typeof info.parentID === "string" && info.parentID !== info.id) parents.set(info.id, info.parentID)
    else sessions.add(info.id)
  }
  const parentOf = (session) => {
    let parent = parents.get(session)
    for (let level = 0; level < 20 && parents.has(parent); level += 1) parent = parents.get(parent)
    return parent
  }
  const show = async (message) => {
    try {
      await client?.tui?.showToast?.({ body: { title: "Safepoint", message, variant: "warning" } })
    } catch {}
  }
  const report = async (hook, input, output) => {
    try {
      const session = input?.sessionID ?? input?.properties?.sessionID ?? input?.properties?.info?.id
      const message = { hook, input, output, directory, worktree, parent: parentOf(session), agent: kinds.get(session) }
      const answer = await ask(message)
      // Without a terminal nothing shows it.
      if (typeof answer.message === "string") show(answer.message)
      return answer
    } catch {
      return {}
    }
  }
  return {
    event: async ({ event }) => {
      if (event?.type === "session.created") learn(event.properties?.info)
      if (EVENTS.has(event?.type)) await report("event", event)
    },
    "chat.message": async (input, output) => {
      if (!parents.has(input?.sessionID)) learn({ id: input?.sessionID })
      else if (typeof input?.agent === "string") kinds.set(input.sessionID, input.agent)
      const answer = await report("chat.message", input, output)
      try {
        addNote(output, answer.additionalContext)
      } catch {}
    },
    "tool.execute.before": async (input, output) => {
      const answer = await report("tool.execute.before", input, { args: output?.args })
      if (typeof answer.deny === "string") throw new Error(answer.deny)
    },
    "tool.execute.after": async (input, output) => {
      await report("tool.execute.after", input, { title: output?.title, metadata: output?.metadata })
    },
    "experimental.session.compacting": async (input) => {
      await report("experimental.session.compacting", input)
    },
    dispose: async () => {
      for (const sessionID of sessions) await report("dispose", { sessionID })
    },
  }
}
