// An entry point that is an ES module: waits at its top level, and says when it is through.
import { setTimeout } from 'node:timers/promises';

await setTimeout(100);
console.log(import.meta.url.split('/').pop());
