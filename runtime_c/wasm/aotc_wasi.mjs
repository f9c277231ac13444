// Runs a program for WASI under node, with this machine's files: node aotc_wasi.mjs PROGRAM ARG..
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { WASI } from "node:wasi";

const [program, ...rest] = process.argv.slice(2);
// WASI knows no current folder
const args = [program, ...rest.map((a) => (a === "-" ? a : resolve(a)))];
const wasi = new WASI({ version: "preview1", args, preopens: { "/": "/" }, returnOnExit: true });
const { instance } = await WebAssembly.instantiate(await readFile(program), {
  wasi_snapshot_preview1: wasi.wasiImport,
});
process.exit(wasi.start(instance));
