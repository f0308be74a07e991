import type { Heading as HeadingNode, List as ListNode, Root, RootContent, Table as TableNode } from "mdast";
import { createElement, type ReactNode } from "react";
import { CodeBlock } from "../parts/CodeBlock";
import { ExternalLink } from "../parts/ExternalLink";

/** Parsed Markdown as elements. HTML in it stays text. */
export function Markdown({ root }: { root: Root }) {
  return elements(root.children);
}

function elements(nodes: readonly RootContent[]): ReactNode {
  return nodes.map((node, at) => <Element key={at} node={node} />);
}

function Element({ node }: { node: RootContent }): ReactNode {
  switch (node.type) {
    case "text":
    case "html":
      return node.value;
    case "heading":
      return <Heading node={node} />;
    case "paragraph":
      return <p>{elements(node.children)}</p>;
    case "emphasis":
      return <em>{elements(node.children)}</em>;
    case "strong":
      return <strong>{elements(node.children)}</strong>;
    case "inlineCode":
      return <code>{node.value}</code>;
    case "code":
      return <CodeBlock code={node.value} label="example" />;
    case "link":
      return <ExternalLink url={node.url}>{elements(node.children)}</ExternalLink>;
    case "list":
      return <List node={node} />;
    case "table":
      return <Table node={node} />;
    default:
      return "children" in node ? elements(node.children) : null;
  }
}

/** A heading, one level down: the page's first heading is the title of the panel. */
function Heading({ node: { depth, children } }: { node: HeadingNode }) {
  return createElement(`h${Math.min(depth + 1, 6)}`, null, elements(children));
}

function List({ node: { ordered, children } }: { node: ListNode }) {
  const items = children.map((item, at) => <li key={at}>{elements(item.children)}</li>);
  return ordered ? <ol>{items}</ol> : <ul>{items}</ul>;
}

function Table({ node }: { node: TableNode }) {
  const [head, ...body] = node.children;
  return (
    <table className="gd-table">
      <thead>
        <tr>
          {head?.children.map((cell, at) => (
            <th key={at} scope="col">
              {elements(cell.children)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {body.map((row, at) => (
          <tr key={at}>
            {row.children.map((cell, column) => (
              <td key={column}>{elements(cell.children)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
