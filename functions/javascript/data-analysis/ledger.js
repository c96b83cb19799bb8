"use strict";

// What each employee has been paid by all calls of this instance. Of employees beyond this many the ones that were
// paid longest ago go.
const MAX_EMPLOYEES = 10_000;

class Ledger {
  #accounts = new Map();

  pay({ employee, pay_cents: cents }) {
    const account = this.#accounts.get(employee) ?? { slips: 0, paid_cents: 0 };
    account.slips++;
    account.paid_cents += cents;
    this.#accounts.delete(employee);
    this.#accounts.set(employee, account);
    if (this.#accounts.size > MAX_EMPLOYEES) this.#accounts.delete(this.#accounts.keys().next().value);
  }

  summary() {
    const summary = { employees: this.#accounts.size, slips: 0, paid_cents: 0 };
    for (const { slips, paid_cents: cents } of this.#accounts.values()) {
      summary.slips += slips;
      summary.paid_cents += cents;
    }
    return summary;
  }
}

module.exports = { Ledger };
