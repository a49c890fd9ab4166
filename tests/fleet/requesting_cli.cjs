"use strict";
// Plays the CLI's npm package where only its requests to a model matter: it starts in a tenth of the
// time. Each line of the prompt is a request; an answer is printed, and an error ends the run as the
// CLI's own does.
const base = process.env.GOOGLE_GEMINI_BASE_URL;
const address = `${base}/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse`;
const headers = { "x-goog-api-key": process.env.GEMINI_API_KEY, "Content-Type": "application/json" };

function say(frame) {
  process.stdout.write(`${JSON.stringify({ timestamp: new Date().toISOString(), ...frame })}\n`);
}

async function request(text) {
  const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }] });
  const response = await fetch(address, { method: "POST", headers, body });
  const answer = await response.text();
  if (!response.ok) throw new Error(`[API Error: ${answer}]`);
  say({ type: "message", role: "assistant", content: `${text}. `, delta: true });
}

async function main() {
  let prompt = "";
  for await (const chunk of process.stdin) prompt += chunk;
  say({ type: "init", session_id: "5e551011", model: "gemini-2.5-flash" });
  try {
    for (const line of prompt.trim().split("\n")) await request(line);
    say({ type: "result", status: "success", stats: {} });
  } catch (error) {
    say({ type: "result", status: "error", error: { type: "unknown", message: error.message } });
    process.exitCode = 144;
  }
}

main();
