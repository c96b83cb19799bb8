// Says in one line of JSON what a program can see of the process that it is in.
'use strict';

setTimeout(() => {
  const { eventNames, _getActiveHandles, getActiveResourcesInfo } = process;
  console.log(JSON.stringify({
    globals: Object.getOwnPropertyNames(globalThis),
    symbols: Object.getOwnPropertySymbols(globalThis).map(String),
    process: Reflect.ownKeys(process).map(String).sort(),
    exit: `${process.reallyExit} ${process.exit.name}`,
    events: eventNames.call(process).map(String),
    handles: _getActiveHandles.call(process).map((handle) => handle.constructor.name),
    resources: getActiveResourcesInfo.call(process),
    environment: Object.keys(process.env).filter((name) => name !== 'SQUEEZER_SOCKET'),
    arguments: process.argv.slice(1),
  }));
}, 50);
