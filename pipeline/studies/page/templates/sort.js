"use strict";
(() => {
  // Tables with all rows in the page: the button in a header sorts by that column.
  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => header.querySelector("button")?.addEventListener("click", () => {
      const isText = header.classList.contains("text");
      const before = header.getAttribute("aria-sort");
      const ascending = before === "none" ? isText : before === "descending";
      headers.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const sortValue = (row) => {
        const cell = row.cells[column];
        const text = cell.dataset.value ?? cell.textContent;
        return isText ? text : text === "" ? -Infinity : Number(text);
      };
      const order = (a, b) => (isText ? sortValue(a).localeCompare(sortValue(b)) : sortValue(a) - sortValue(b) || 0);
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => (ascending ? order(a, b) : order(b, a))));
    }));
  }
})();
